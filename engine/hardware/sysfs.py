"""Small files of /proc and /sys: what they say, or None. Nothing here raises: they may be absent, masked, or junk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from engine.hardware.cpu_list import parse_cpus

_MOST = 1 << 20
"""Bytes that are read of a file; the largest one that we read, cpuinfo of 512 processors, is smaller."""


def live_root() -> Path:
    """Below which /proc and /sys of this machine lie. LAYERDECK_ROOT: below which those of a machine lie that tests pretend."""
    return Path(os.environ.get("LAYERDECK_ROOT", "/"))


def text(path: Path | str) -> str | None:
    """The file's text without white space around it; None when it cannot be read."""
    raw = read(path)
    return None if raw is None else raw.decode("utf-8", "replace").strip()


def read(path: Path | str) -> bytes | None:
    """The file's bytes, without the detours of Python's file objects: sensors read hundreds of these a second."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        # The kernel makes such files as they are read, often in pieces of a page.
        chunks = [os.read(fd, _MOST)]
        while chunks[-1] and sum(map(len, chunks)) < _MOST:
            chunks.append(os.read(fd, _MOST))
        return b"".join(chunks)
    except OSError:
        return None
    finally:
        os.close(fd)


def number(path: Path | str) -> int | None:
    """The whole number in a file."""
    return as_number(text(path))


def as_number(word: str | None) -> int | None:
    """A decimal number of at most 20 digits, with or without a sign."""
    if word is None or len(word) > 21:
        return None
    digits = word.removeprefix("-")
    return int(word) if digits.isascii() and digits.isdigit() else None


def cpus(path: Path | str) -> tuple[int, ...] | None:
    """The list of processors in a file; None when there is no file or it holds something else."""
    return as_cpus(text(path))


def as_cpus(word: str | None) -> tuple[int, ...] | None:
    """The list of processors that a word is; None where it is none."""
    return None if word is None else parse_cpus(word)


def lines(path: Path | str) -> list[str]:
    """The lines of a file, none when it cannot be read."""
    return (text(path) or "").splitlines()


def fields(path: Path | str) -> dict[str, str]:
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
