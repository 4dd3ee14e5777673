"""Text from a model or a user made safe to show: no control characters, no bidirectional tricks that hide what is written."""

from __future__ import annotations

import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_BIDI = re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_LONG = 8000
_FSI, _PDI = "\u2068", "\u2069"


def clean(text: str) -> str:
    """Without C0 and C1 controls except newline and tab, lone surrogates and non-characters."""
    return _CONTROLS.sub("", text)


def mark_bidi(text: str) -> str:
    """With bidirectional controls spelled out, e.g. `<U+202E>`: for code and link targets, where order is meaning."""
    return _BIDI.sub(lambda match: f"<U+{ord(match.group()):04X}>", text)


def isolate_bidi(text: str) -> str:
    """A prose run that holds bidirectional controls, isolated so that they cannot reorder what surrounds it."""
    return f"{_FSI}{text}{_PDI}" if _BIDI.search(text) else text


def has_hidden(text: str) -> bool:
    """Whether the text holds characters that are not shown as they are; line ends of other systems do not count."""
    return bool(_CONTROLS.search(text.replace("\r\n", "\n")) or _BIDI.search(text))


def break_long_lines(text: str, limit: int = _LONG) -> str:
    """With a newline after every `limit` characters of a line: Qt lays out endless lines in quadratic time."""
    if len(text) <= limit:
        return text
    lines = text.split("\n")
    if max(map(len, lines)) <= limit:
        return text
    return "\n".join("\n".join(line[i : i + limit] for i in range(0, max(1, len(line)), limit)) for line in lines)
