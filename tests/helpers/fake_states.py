"""A model whose sequences have a state beside their blocks: the next token is a hash of what the state saw, in order.

So a state that does not go with the blocks, a slot that was overwritten, or a snapshot of other tokens changes the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from engine.errors import Cancelled
from engine.runtime.step import StepBatch
from tests.helpers.fake_model import BLOCK, N_VOCAB, FakeModel, next_token


@dataclass
class FakeStates(FakeModel):
    """stop: so many of the next steps are stopped half-way, with garbage in the slots that they write."""

    state_slots: tuple[int, int] = (12, 5)
    stop: int = 0
    slots: dict[int, list[int]] = field(default_factory=dict)

    def step(self, batch: StepBatch) -> npt.NDArray[np.float32]:
        """One-hot logits [n_out, N_VOCAB]."""
        assert batch.states is not None
        written = [slot for use in batch.states.tolist() for slot in use[1:3] if slot >= 0]
        assert len(set(written)) == len(written)
        assert not set(written) & set(batch.states[:, 0].tolist())
        if self.stop:
            self.stop -= 1
            self.slots |= {slot: [-7] for slot in written}
            raise Cancelled("the step was stopped")
        super().step(batch)
        logits = np.zeros((len(batch.out_rows), N_VOCAB), np.float32)
        for seq, (read, write, mark, n_marked) in enumerate(batch.states.tolist()):
            rows = np.flatnonzero(batch.seq_of_row == seq)
            seen = [] if batch.positions[rows[0]] == 0 else list(self.slots[read])
            assert len(seen) == batch.positions[rows[0]]
            for n, row in enumerate(rows, 1):
                seen.append(int(batch.token_ids[row]))
                if mark >= 0 and n == n_marked:
                    self.slots[mark] = list(seen)
                for out in np.flatnonzero(batch.out_rows == row):
                    position = int(batch.positions[row])
                    assert self.cache[batch.block_tables[seq][0]].reshape(-1)[: position + 1].tolist() == seen
                    logits[out, next_token(seen)] = 10.0
            self.slots[write] = seen
        return logits


__all__ = ["BLOCK", "FakeStates"]
