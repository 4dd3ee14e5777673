"""Room for one made-up sequence, for whoever wants to know what steps take: blocks and states that no answer uses, given back
without a trace. Of what earlier prompts left in the cache, the oldest may go, as it would for a new prompt of that length."""

from __future__ import annotations

from array import array

import numpy as np

from engine.runtime.step import StepBatch
from engine.session.block_manager import BlockManager
from engine.session.states import StateHold, StateSlots


class Rehearsal:
    """For times without answers: `close` it before the next one is admitted."""

    def __init__(self, blocks: BlockManager, states: StateSlots, n_tokens: int, n_vocab: int) -> None:
        """n_tokens: of the longest step, no more than a chunk of a prompt."""
        self._blocks, self._states = blocks, states
        self._tokens = np.random.default_rng(0).integers(0, n_vocab, n_tokens).astype(np.int32)  # that pass different experts
        self._table = blocks.open([0])
        blocks.reserve(self._table, n_tokens)
        self._holds = (StateHold(), StateHold())
        if states.in_use:
            for hold in self._holds:
                states.prepare(hold)

    def prompt(self, n_tokens: int) -> StepBatch:
        """A step of the first n_tokens of a prompt, whose last logits are wanted."""
        return self._batch("prefill", 0, n_tokens)

    def token(self, position: int) -> StepBatch:
        """A decoded token behind `position` others, which a prompt brought."""
        return self._batch("decode", position, 1)

    def close(self) -> None:
        """Gives the room back. Idempotent."""
        self._blocks.release(self._table)
        for hold in self._holds:
            self._states.end(hold, array("i"))

    def _batch(self, phase: str, first: int, n: int) -> StepBatch:
        states = None
        if self._states.in_use:
            read, write = self._holds
            states = np.array([(read.next, write.next, -1, 0)], np.int32)
            # A prompt from position 0 reads no state and fills the slot that tokens behind it read.
            if phase == "prefill":
                states[0, :2] = write.next, read.next
        return StepBatch(
            phase="prefill" if phase == "prefill" else "decode",
            token_ids=self._tokens[first : first + n],
            positions=np.arange(first, first + n, dtype=np.int32),
            seq_of_row=np.zeros(n, np.int32),
            block_tables=(np.array(self._table.groups, np.int32),),
            out_rows=np.array([n - 1], np.int32),
            states=states,
        )
