"""Which experts deserve a place in a pool: recency times frequency, learned from the tokens that pass. Pure; knows no device.

A pass adds 1 to an expert's score, which halves every HALF_LIFE tokens. What was just missed takes the place of what has the
lowest score, if its own is MARGIN times as high: without that margin twice as many experts are moved for the same hits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kernels_pyx.promotion import saw, wishes

HALF_LIFE = 12.0
MARGIN = 2.0
MOST = 2
"""Moves of a layer after one token."""
WINDOW = 128
"""Tokens after which it is asked whether moving has paid."""
PATIENCE = 2
"""Windows in a row without gain that end it."""
COST = 1.0
"""Hits that a move must bring: each saves the CPU one read of an expert from memory, and a move is one such read."""

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]


class Move(NamedTuple):
    """Copy `expert` into `slot` of the pool of `layer` (its place among the pools), in the place of `victim`, -1: of nothing."""

    layer: int
    expert: int
    slot: int
    victim: int


class Promotion:
    """The contents of all pools, and what they should become.

    slot_of: int32 [n_layers, n_experts], the slot of each expert, -1: none, or on its way.
    """

    def __init__(self, n_experts: int, held: Sequence[Sequence[int]]) -> None:
        """held: the experts of each pool by slot."""
        n = len(held)
        self._held = np.full((n, max(map(len, held), default=1)), -1, np.int64)
        real = np.arange(self._held.shape[1]) < np.array([[len(one)] for one in held]).reshape(n, 1)
        self._free = np.ascontiguousarray(real, np.uint8)
        """Slots that something else may take."""
        self.slot_of: I32 = np.full((n, n_experts), -1, np.int32)
        for layer, experts in enumerate(held):
            self._held[layer, : len(experts)] = experts
            self.slot_of[layer, list(experts)] = np.arange(len(experts))
        self.version = 0
        """Changes with `slot_of`."""
        self._scores = np.zeros((n, n_experts))
        self._gain = 1.0  # what a pass adds: it grows, instead of all scores fading
        self._rows = np.arange(n)[:, None]
        self._coming: list[Move] = []
        self._missed: I64 | None = None
        self._room = np.zeros((n, 0), np.int64), np.zeros(n, np.int64)
        self.worth = Worth()
        self.worth.begin(self.slot_of)

    def experts(self, layer: int) -> tuple[int, ...]:
        """What a pool holds or gets, by slot."""
        return tuple(one for one in self._held[layer].tolist() if one >= 0)

    def hits(self, ids: I64) -> npt.NDArray[np.bool_]:
        """Which of a token's choices, [n_layers, n_used], pools take. ids of -1 are no choice."""
        found: npt.NDArray[np.bool_] = (self.slot_of[self._rows, np.maximum(ids, 0)] >= 0) & (ids >= 0)
        return found

    def saw(self, ids: I64) -> I64:
        """A token's choices, [n_layers, n_used]; a layer may be shorter, filled up with -1. How many of each layer hit, until the
        next token."""
        self._gain *= 2.0 ** (1.0 / HALF_LIFE)
        if self._gain > 1e200:
            self._scores /= self._gain
            self._gain = 1.0
        if self._room[0].shape != ids.shape:
            self._room = np.zeros(ids.shape, np.int64), np.zeros(len(ids), np.int64)
        self._missed, hits = self._room
        n_hits, n_still = saw(ids, self.slot_of, self.worth.still, self._scores, self._gain, self._missed, hits)
        self.worth.saw(self.slot_of, n_hits, n_still)
        return hits

    def plan(self, most: int) -> list[Move]:
        """Up to `most` moves that are worth it after the last token, best first; their victims leave at once."""
        if self._missed is None:
            return []
        found = wishes(self._missed, self._scores, self._held, self._free, MARGIN, MOST)
        self._missed = None
        found.sort(reverse=True)
        moves = [Move(layer, expert, slot, int(self._held[layer, slot])) for _, layer, expert, slot in found[:most]]
        for move in moves:
            if move.victim >= 0:
                self.slot_of[move.layer, move.victim] = -1
            self._held[move.layer, move.slot] = move.expert
            self._free[move.layer, move.slot] = False  # not before it has come
        self.version += bool(moves)
        self._coming += moves
        self.worth.moved(len(moves))
        return moves

    @property
    def coming(self) -> Sequence[Move]:
        """What is on its way."""
        return self._coming

    def arrived(self) -> None:
        """All that was on its way is there."""
        for move in self._coming:
            self.slot_of[move.layer, move.expert] = move.slot
        self._has_come()

    def lost(self) -> None:
        """Nothing of what was on its way has come: the places hold nothing until something else takes them."""
        for move in self._coming:
            self._held[move.layer, move.slot] = -1
        self._has_come()

    def _has_come(self) -> None:
        for move in self._coming:
            self._free[move.layer, move.slot] = True
        self.version += bool(self._coming)
        self._coming.clear()


class Worth:
    """Whether moving experts pays: hits of pools against those of what they held when the window began."""

    def __init__(self) -> None:
        self.pays = True
        self.why = ""
        self._fails = 0
        self._n_tokens = self._n_moves = self._n_hits = self._n_still = 0
        self.still: I32 = np.zeros((0, 0), np.int32)

    def renew(self, slot_of: I32) -> None:
        """Nothing is held against it any more."""
        self.pays, self.why, self._fails = True, "", 0
        self.begin(slot_of)

    def begin(self, slot_of: I32) -> None:
        """A window begins with these contents."""
        self._n_tokens = self._n_moves = self._n_hits = self._n_still = 0
        self.still = slot_of.copy()

    def saw(self, slot_of: I32, n_hits: int, n_still: int) -> None:
        """Of a token's choices n_hits hit, n_still would have, had nothing moved since the window began."""
        self._n_hits += n_hits
        self._n_still += n_still
        self._n_tokens += 1
        if self._n_tokens < WINDOW:
            return
        gained = self._n_hits - self._n_still
        self._fails = self._fails + 1 if self._n_moves and gained < COST * self._n_moves else 0
        if self._fails >= PATIENCE:
            self.pays = False
            self.why = (
                f"In {WINDOW} tokens {self._n_moves:,} experts were moved to pools, which brought {max(0, gained):,} hits more "
                "than leaving them as they were: promotion has been switched off."
            )
        self.begin(slot_of)

    def moved(self, n: int) -> None:
        """So many experts set off."""
        self._n_moves += n
