"""What commands write: exactly one JSON object or plain text on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import InvalidRequest


def write_json(value: Mapping[str, Any]) -> None:
    """Writes the one JSON object of a command."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def write_text(text: str) -> None:
    """Writes text as it is, at once; lone surrogates, which have no UTF-8 form, are replaced."""
    sys.stdout.write(text.encode("utf-8", "replace").decode())
    sys.stdout.flush()


def note(message: str) -> None:
    """Writes a line for people on standard error."""
    sys.stderr.write(f"layerdeck: {one_line(message)}\n")


def one_line(message: str) -> str:
    """The message without line breaks and control characters."""
    return "".join(c if c.isprintable() else " " for c in message)


def read_text_file(path: Path) -> str:
    """The text of a UTF-8 file.

    Raises: InvalidRequest when it cannot be read or is no UTF-8.
    """
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise InvalidRequest(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path}: byte {error.start} is not valid UTF-8; convert the file to UTF-8") from error


def read_json_file(path: Path) -> Any:
    """The content of a JSON file.

    Raises: InvalidRequest when it cannot be read or is no JSON.
    """
    try:
        return json.loads(read_text_file(path))
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"{path}: line {error.lineno} is not valid JSON ({error.msg}); correct the file") from error
    except RecursionError as error:
        raise InvalidRequest(f"{path}: the JSON is nested too deeply; correct the file") from error
