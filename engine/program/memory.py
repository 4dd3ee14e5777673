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
    placed: list[tuple[Life, int]] = []
    offsets: dict[str, int] = {}
    total = align
    for life in sorted(lives, key=lambda one: (-one.nbytes, one.first, one.name)):
        size = _rounded(life.nbytes, align)
        at = 0
        neighbours = sorted((start, start + _rounded(other.nbytes, align)) for other, start in placed if _together(life, other))
        for start, end in neighbours:
            if at + size <= start:
                break
            at = max(at, end)
        placed.append((life, at))
        offsets[life.name] = at
        total = max(total, at + size)
    return Layout(offsets, total)


def _rounded(nbytes: int, align: int) -> int:
    return -(-nbytes // align) * align


def _together(a: Life, b: Life) -> bool:
    return a.first <= b.last and b.first <= a.last
