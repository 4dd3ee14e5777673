"""A model without weights whose cache has a group for whole contexts and one for a window."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from engine.runtime.cache_groups import CacheGroup
from engine.runtime.choices import Chosen
from engine.runtime.step import StepBatch
from engine.runtime.tally import ExpertTally
from tests.helpers.fake_model import BLOCK, N_VOCAB, next_token


@dataclass
class FakeWindows:
    """`step` as the executor has it. A token is remembered with its position in both groups; what a row sees must agree.

    steps: the batches it got; fail_with: raised by the next step.
    """

    window: int
    chunk: int
    n_ctx: int = 512
    n_kept: int = 2
    n_full: int = 16
    steps: list[StepBatch] = field(default_factory=list)
    fail_with: Exception | None = None
    state_slots: tuple[int, int] = (0, 0)
    experts: ExpertTally | None = None
    chosen: tuple[Chosen, ...] = ()

    def __post_init__(self) -> None:
        decoding = -(-self.window // BLOCK) + 1
        needed = -(-self.window // BLOCK) + self.chunk // BLOCK if self.chunk % BLOCK == 0 else decoding + self.chunk // BLOCK + 1
        n_blocks = min(self.n_full, needed + self.n_kept * decoding)
        needed = min(n_blocks, needed)
        self.cache_groups = (
            CacheGroup(None, self.n_full, self.n_full, self.n_full),
            CacheGroup(self.window, n_blocks, needed, min(needed, decoding)),
        )
        self.caches = [np.full((group.n_blocks, BLOCK, 2), -1, np.int64) for group in self.cache_groups]

    def step(self, batch: StepBatch) -> npt.NDArray[np.float32]:
        """One-hot logits [n_out, N_VOCAB]."""
        self.steps.append(batch)
        if self.fail_with is not None:
            error, self.fail_with = self.fail_with, None
            raise error
        for token, position, seq in zip(batch.token_ids, batch.positions, batch.seq_of_row, strict=True):
            for cache, table in zip(self.caches, batch.block_tables[seq], strict=True):
                assert table[position // BLOCK] >= 0
                cache[table[position // BLOCK], position % BLOCK] = token, position
        logits = np.zeros((len(batch.out_rows), N_VOCAB), np.float32)
        for row, (position, seq) in enumerate(zip(batch.positions, batch.seq_of_row, strict=True)):
            table, at = batch.block_tables[seq], np.arange(position + 1)
            near = at[max(0, len(at) - self.window) :]
            seen = self.caches[0][table[0][at // BLOCK], at % BLOCK]
            assert (table[1][near // BLOCK] >= 0).all()
            assert (self.caches[1][table[1][near // BLOCK], near % BLOCK] == seen[near]).all()
            assert (seen[:, 1] == at).all()
            for out in np.flatnonzero(batch.out_rows == row):
                logits[out, next_token(seen[:, 0].tolist())] = 10.0
        return logits
