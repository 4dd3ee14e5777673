"""Lifetimes to arena offsets: buffers that are never alive together may share bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGN = 64


@dataclass(frozen=True, slots=True)
class Life:
    """A buffer of nbytes, alive from op `first` to op `last`, both included."""

    name: str
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets by name, multiples of the alignment asked for, and the bytes of the whole."""

    offsets: dict[str, int]
    nbytes: int


def lay_out(lives: Sequence[Life], align: int = ALIGN) -> Layout:
    """Places the largest buffers first, each at the lowest offset where nothing alive at the same time lies."""
    alive: dict[int, set[tuple[int, int]]] = {}  # what lies where at each op: most buffers live for a few ops only
    offsets: dict[str, int] = {}
    total = align
    for life in sorted(lives, key=lambda one: (-one.nbytes, one.first, one.name)):
        size = _rounded(life.nbytes, align)
        at = 0
        span = range(life.first, life.last + 1)
        neighbours: set[tuple[int, int]] = set().union(*(alive.get(op, ()) for op in span))
        for start, end in sorted(neighbours):
            if at + size <= start:
                break
            at = max(at, end)
        for op in span:
            alive.setdefault(op, set()).add((at, at + size))
        offsets[life.name] = at
        total = max(total, at + size)
    return Layout(offsets, total)


def _rounded(nbytes: int, align: int) -> int:
    return -(-nbytes // align) * align
