"""The /proc and /sys of machines that nobody has at hand, unpacked for a test; `expected` says what is in them."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "golden" / "machines"
NAMES = tuple(sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz")))


def unpack(name: str, into: Path) -> Path:
    """The root of a machine's files, in a folder of `into`."""
    if not (into / name).exists():
        with tarfile.open(FOLDER / f"{name}.tar.xz") as packed:
            packed.extractall(into, filter=_as_it_was)
    return into / name


def expected(root: Path) -> dict[str, Any]:
    """What a reader must find below a root."""
    found: dict[str, Any] = json.loads((root / "expected.json").read_text(encoding="utf-8"))
    return found


def _as_it_was(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
    # The usual filter would make files readable that nobody may read; that is what some are there for.
    mode, checked = member.mode, tarfile.data_filter(member, path)
    return checked.replace(mode=mode, deep=False) if checked.isfile() else checked
