"""Where the logits of a step land in the machine's memory: rooms that are used again once their reader has let go of them.

A head on a GPU copies straight into the room that a step's caller gets: a copy of 600 KB more would be a fiftieth of a step.
"""

from __future__ import annotations

import math
import sys

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

F32 = npt.NDArray[np.float32]

KEPT_ROOMS = 4
KEPT_OUT = 8
"""Wanted rows that always have room; for more it is taken for the step alone."""
UNSHARED = 2
"""References to a room's array that the room and the question itself hold."""


class LogitRoom:
    """Logits [n_out, n_vocab], and behind them the sum of each row, which is finite only if they are."""

    def __init__(self, n_out: int, n_vocab: int, *, pinned: bool) -> None:
        self.shape = n_out, n_vocab
        self.floats: Tensor = torch.empty(n_out * (n_vocab + 1), pin_memory=pinned)
        self._array: F32 = self.floats.numpy()  # numpy, since a small op of torch takes tens of microseconds on the host

    @property
    def in_use(self) -> bool:
        """Whether somebody still reads what it gave."""
        return sys.getrefcount(self._array) > UNSHARED

    def logits(self, n: int) -> F32:
        """The first n rows, which keep the room from being used again."""
        n_out, n_vocab = self.shape
        return self._array[: n_out * n_vocab].reshape(n_out, n_vocab)[:n]

    def finite(self, n: int) -> bool:
        """Whether the first n rows are."""
        n_out, n_vocab = self.shape
        return all(map(math.isfinite, self._array[n_out * n_vocab : n_out * n_vocab + n].tolist()))


class LogitRooms:
    """The rooms of one executor."""

    def __init__(self, n_vocab: int, *, pinned: bool) -> None:
        self._n_vocab = n_vocab
        self._pinned = pinned
        self._kept: list[LogitRoom] = []

    def take(self, n_out: int) -> LogitRoom:
        """A room that nobody reads, pinned where steps of so few wanted rows keep theirs."""
        for room in self._kept:
            if room.shape[0] == n_out and not room.in_use:
                return room
        few = 0 < n_out <= KEPT_OUT
        made = LogitRoom(n_out, self._n_vocab, pinned=self._pinned and few)
        if few:
            self._kept = [*self._kept[-KEPT_ROOMS + 1 :], made]
        return made
