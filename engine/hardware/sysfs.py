"""Small files of /proc and /sys: what they say, or None. Nothing here raises: they may be absent, masked, or junk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engine.hardware.cpu_list import parse_cpus

_MOST = 1 << 20
"""Bytes that are read of a file; the largest one that we read, cpuinfo of 512 processors, is smaller."""


def text(path: Path) -> str | None:
    """The file's text without white space around it; None when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST).decode("utf-8", "replace").strip()
    except (OSError, ValueError):
        return None


def number(path: Path) -> int | None:
    """The whole number in a file."""
    return as_number(text(path))


def as_number(word: str | None) -> int | None:
    """A decimal number of at most 20 digits, with or without a sign."""
    if word is None or len(word) > 21:
        return None
    digits = word.removeprefix("-")
    return int(word) if digits.isascii() and digits.isdigit() else None


def cpus(path: Path) -> tuple[int, ...] | None:
    """The list of processors in a file; None when there is no file or it holds something else."""
    return as_cpus(text(path))


def as_cpus(word: str | None) -> tuple[int, ...] | None:
    """The list of processors that a word is; None where it is none."""
    return None if word is None else parse_cpus(word)


def lines(path: Path) -> list[str]:
    """The lines of a file, none when it cannot be read."""
    return (text(path) or "").splitlines()


def fields(path: Path) -> dict[str, str]:
    """`key: value` lines."""
    parted = (line.partition(":") for line in lines(path))
    return {key.strip(): value.strip() for key, colon, value in parted if colon}


def numbered(folder: Path, prefix: str) -> Iterator[tuple[int, Path]]:
    """(number, path) of `prefix<number>` in a folder, ascending by number."""
    try:
        names = [one.name for one in folder.iterdir()]
    except OSError:
        return
    found = {name: as_number(name.removeprefix(prefix)) for name in names if name.startswith(prefix)}
    for name, value in sorted(found.items(), key=lambda pair: pair[1] or 0):
        if value is not None and value >= 0:
            yield value, folder / name
