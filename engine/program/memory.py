"""Lifetimes to arena offsets: buffers that are never alive together may share bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ALIGN = 64
BRIEF = 16
"""Ops for which most buffers live at most: what lives longer is looked at one by one."""


class Life(NamedTuple):
    """A buffer of nbytes, alive from op `first` to op `last`, both included."""

    name: str
    nbytes: int
    first: int
    last: int


class Layout(NamedTuple):
    """Offsets by name, multiples of the alignment asked for, and the bytes of the whole."""

    offsets: dict[str, int]
    nbytes: int


def lay_out(lives: Sequence[Life], align: int = ALIGN) -> Layout:
    """Places the largest buffers first, each at the lowest offset where nothing alive at the same time lies."""
    alive: dict[int, list[tuple[int, int]]] = {}  # what lies where at each op, of buffers that live briefly
    long: list[tuple[int, int, tuple[int, int]]] = []
    offsets: dict[str, int] = {}
    total = align
    for nbytes, first, name, last in sorted((-one.nbytes, one.first, one.name, one.last) for one in lives):
        size = -(nbytes // align) * align
        neighbours = [place for begin, end, place in long if begin <= last and first <= end]
        for op in range(first, last + 1):
            if op in alive:
                neighbours += alive[op]
        neighbours.sort()
        at = 0
        for start, end in neighbours:
            if at + size <= start:
                break
            if end > at:
                at = end
        place = at, at + size
        if last - first < BRIEF:
            for op in range(first, last + 1):
                alive.setdefault(op, []).append(place)
        else:
            long.append((first, last, place))
        offsets[name] = at
        total = max(total, at + size)
    return Layout(offsets, total)
