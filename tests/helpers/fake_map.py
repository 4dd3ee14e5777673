"""A mapped file that only notes what becomes of its pages, and pieces of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from errno import EIO

from engine.runtime.owning import PIECE_BYTES, Owning, Piece

TOTAL = 24 << 30
HEADROOM = 6 << 30


class FakeMap:
    """Notes what is done to it. Pages are small until owned, and then as `gives` says; `broken` offsets cannot be read."""

    address = 1 << 40

    def __init__(self, *, gives: bool = True, broken: int | None = None, error: int = EIO) -> None:
        self.gives, self.broken, self.error = gives, broken, error
        self.owned: dict[int, bool] = {}
        self.given_back: list[int] = []
        self.huge: set[int] = set()

    def in_huge_pages(self, offset: int, n: int) -> int | None:
        return n if offset in self.huge or (self.gives and offset in self.owned) else 0

    def own(self, offset: int, n: int, *, drop: bool = False) -> None:
        if offset == self.broken:
            raise OSError(self.error, os.strerror(self.error))
        self.owned[offset] = drop

    def disown(self, offset: int, n: int) -> None:
        del self.owned[offset]
        self.given_back.append(offset)


def pieces(n: int, worth: Sequence[float] = ()) -> list[Piece]:
    """Pieces in a row."""
    return [Piece(0, i * PIECE_BYTES, PIECE_BYTES, worth[i] if worth else 1.0) for i in range(n)]


def finish(owning: Owning) -> None:
    """All that is to be done."""
    while not owning.done:
        owning.advance()


def weights_threads() -> int:
    """Threads that are at it."""
    return sum(one.name.startswith("weights") for one in threading.enumerate())
