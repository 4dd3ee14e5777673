"""The states of sequences in models with recurrent layers: slots of one size, each with the state of every such layer.

Who holds which slot is the business of callers; for batches that name none, each sequence alternates between two slots.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.arch.spec import ModelSpec
from engine.errors import InvalidRequest
from engine.estimate.states import MAX_RUNNING, plan_slots, snapshot_budget, state_bytes, state_shapes
from engine.runtime.kv_cache import allocate

__all__ = ["MAX_RUNNING", "StatePool", "plan_slots", "snapshot_budget", "state_bytes"]


class StatePool:
    """Slots of memory that is taken as they are first written. layers: address of a layer's part of slot 0."""

    def __init__(self, spec: ModelSpec, n_slots: int, *, layers: frozenset[int] | None = None) -> None:
        """n_slots: see `plan_slots`. layers: those whose states lie here, None: all; the slots are those of the whole model.

        Raises:
            OutOfMemory: more than is free.
        """
        shapes = [(layer, shape) for layer, shape in state_shapes(spec) if layers is None or layer in layers]
        self.slot_bytes = sum(4 * shape.state_floats for _, shape in shapes)
        self.n_slots = n_slots
        self.layers: dict[int, int] = {}
        self.nbytes = self.n_slots * self.slot_bytes
        self._arena = allocate(self.nbytes, "the state of recurrent layers", "allow fewer snapshots") if self.nbytes else None
        at = 0 if self._arena is None else self._arena.address
        for layer, shape in shapes:
            self.layers[layer] = at
            at += 4 * shape.state_floats
        self._newest = np.zeros(self.n_slots // 2, np.int32)

    def own(self, n_seqs: int) -> npt.NDArray[np.int32]:
        """Slots [n_seqs, 4] for a batch that names none: sequence i reads what sequence i of the last batch wrote.

        Raises:
            InvalidRequest: more sequences than there are slots for.
        """
        if n_seqs > len(self._newest):
            raise InvalidRequest(f"a step of {n_seqs} sequences; this model has room for the states of {len(self._newest)}")
        at, first = self._newest[:n_seqs], 2 * np.arange(n_seqs, dtype=np.int32)
        none = np.full(n_seqs, -1, np.int32)
        return np.stack((first + at, first + 1 - at, none, np.zeros(n_seqs, np.int32)), axis=1)

    def done(self, n_seqs: int) -> None:
        """A step with the slots of `own` came to its end."""
        self._newest[:n_seqs] ^= 1

    def close(self) -> None:
        """Gives the memory back. Idempotent."""
        if self._arena is not None:
            self._arena.close()
