"""Which blocks of the cache and which slots of states hold something, and which of them steps have written since a moment.

A placement that is built beside a running one gets copies of both while steps go on; what they write meanwhile is copied again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.runtime.cache_groups import BLOCK, CacheGroup
from engine.runtime.step import StepBatch

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Live:
    """blocks: by cache group; slots: of states. What is not in it may be lost."""

    blocks: tuple[I64, ...]
    slots: I64

    def both(self, other: Live) -> Live:
        """What is in both."""
        pairs = zip(self.blocks, other.blocks, strict=True)
        return Live(tuple(_common(one, two) for one, two in pairs), _common(self.slots, other.slots))


def everything(groups: tuple[CacheGroup, ...], n_slots: int) -> Live:
    """All that there is room for."""
    return Live(tuple(np.arange(group.n_blocks) for group in groups), np.arange(n_slots))


class Written:
    """Filled by the thread that steps."""

    def __init__(self, n_groups: int, n_slots: int) -> None:
        self._blocks: tuple[set[int], ...] = tuple(set() for _ in range(n_groups))
        self._slots: set[int] = set()
        self._n_slots = n_slots

    def note(self, batch: StepBatch) -> None:
        """What a step of this batch writes, whatever becomes of it."""
        for i, table in enumerate(batch.block_tables):
            own = np.unique(batch.positions[batch.seq_of_row == i] // BLOCK)
            for group, blocks in enumerate(self._blocks):
                row = table if table.ndim == 1 else table[group]
                blocks.update(row[own].tolist())
        if batch.states is not None:
            self._slots.update(batch.states[:, 1:3].ravel().tolist())
        else:
            self._slots.update(range(min(self._n_slots, 2 * len(batch.block_tables))))

    def found(self) -> Live:
        """All of it."""
        return Live(tuple(_sorted(one) for one in self._blocks), _sorted(self._slots))


def _common(one: I64, other: I64) -> I64:
    # numpy's own imports half of numpy when it is first called, which answers would wait for.
    return _sorted(set(one.tolist()) & set(other.tolist()))


def _sorted(found: set[int]) -> I64:
    return np.array(sorted(one for one in found if one >= 0), np.int64)
