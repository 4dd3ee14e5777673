"""Lists of processors as the kernel writes them and people give them: `0-7,16-23`."""

from __future__ import annotations

from collections.abc import Iterable

from engine.errors import InvalidRequest

MAX_CPUS = 8192
"""The most that Linux is built for on x86."""


def parse_cpus(text: str) -> tuple[int, ...] | None:
    """The numbers of a list, ascending, each once; None where it is none. An empty text is the empty list."""
    text = text.strip()
    if not text:
        return ()
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isascii() and first.isdigit() and len(first) < 6):
            return None
        if dash and not (last.isascii() and last.isdigit() and len(last) < 6):
            return None
        low, high = int(first), int(last) if dash else int(first)
        if not low <= high < MAX_CPUS:
            return None
        found.update(range(low, high + 1))
    return tuple(sorted(found))


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
    """What a user gave.

    Raises:
        InvalidRequest: no list of processors, or an empty one.
    """
    cpus = parse_cpus(text)
    if not cpus:
        raise InvalidRequest(f"{text[:40]!r} is no list of processors; write it like 0-7,16-23")
    return cpus
