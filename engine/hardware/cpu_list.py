"""Lists of processors as the kernel writes them and people give them: `0-7,16-23`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from engine.errors import InvalidRequest

MAX_CPUS = 8192
"""The most that Linux is built for on x86."""


def parse_cpus(text: str) -> tuple[int, ...] | None:
    """The numbers of a list, ascending, each once; None where it is none. An empty text is the empty list."""
    listed = _listed(text)
    return None if listed is None else tuple(sorted(set(listed)))


def _listed(text: str) -> list[int] | None:
    """The numbers as they stand there."""
    text = text.strip()
    if not text:
        return []
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isascii() and first.isdigit() and len(first) < 6):
            return None
        if dash and not (last.isascii() and last.isdigit() and len(last) < 6):
            return None
        low, high = int(first), int(last) if dash else int(first)
        if not low <= high < MAX_CPUS:
            return None
        found.extend(range(low, high + 1))
    return found


def format_cpus(cpus: Iterable[int]) -> str:
    """The list as short as can be, ascending: `0-7,16-23`."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def wanted_cpus(text: str) -> tuple[int, ...]:
    """What a user gave, ascending.

    Raises:
        InvalidRequest: no list of processors, an empty one, or one that names a processor twice.
    """
    listed = _listed(text)
    if not listed:
        raise InvalidRequest(f"{text[:40]!r} is no list of processors; write it like 0-7,16-23")
    twice = [cpu for cpu, n in Counter(listed).items() if n > 1]
    if twice:
        what = "processor" if len(twice) == 1 else "processors"
        raise InvalidRequest(f"{what} {format_cpus(twice)} listed twice; each runs one worker, so name it once")
    return tuple(sorted(listed))
