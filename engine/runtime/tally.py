"""How often each expert was passed: of a model since it was loaded, of an answer since it began. Exact."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from engine.runtime.choices import I64, Chosen, MoeLayers

PENDING = 64
"""Rows whose choices are kept as they are until they are counted together: a token waits for as little as can be."""


class ExpertTally:
    """n_tokens: that were computed."""

    def __init__(self, moe: MoeLayers) -> None:
        self.moe = moe
        self.n_tokens = 0
        self._left_out = np.zeros(len(moe.layers), np.int64)
        self._counts: npt.NDArray[np.uint64] = np.zeros((len(moe.layers), moe.n_experts), np.uint64)
        self._pending: list[I64] = []

    def add(self, chosen: Iterable[Chosen], sequence: int | None = None) -> None:
        """What a step chose, or only what rows of one of its sequences did."""
        for one in chosen:
            if sequence is not None and one.sequence != sequence:
                continue
            self.n_tokens += one.n_rows
            if one.n_late != one.n_rows:
                self._left_out[one.late] += one.n_rows - one.n_late
            if one.flat is not None:
                self._pending.append(one.flat)
            elif one.counts is not None:
                self._counts += one.counts.astype(np.uint64)
        if len(self._pending) >= PENDING:
            self._count()

    def _count(self) -> None:
        if self._pending:
            found = np.bincount(np.concatenate(self._pending), minlength=self._counts.size)
            self._counts += found.astype(np.uint64).reshape(self._counts.shape)
            self._pending.clear()

    @property
    def counts(self) -> npt.NDArray[np.uint64]:
        """[n_layers, n_experts]; changes as more are added."""
        self._count()
        return self._counts

    @property
    def rows(self) -> I64:
        """[n_layers], tokens that passed each layer's router."""
        return self.n_tokens - self._left_out

    def clear(self) -> None:
        """Counts from 0 again."""
        self.n_tokens = 0
        self._pending.clear()
        self._left_out[:] = 0
        self._counts[:] = 0
