"""The states of sequences in models with recurrent layers: slots of one size, each with the state of every such layer.

Who holds which slot is the business of callers; for batches that name none, each sequence alternates between two slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.arch.spec import ModelSpec
from engine.errors import InvalidRequest
from engine.estimate.states import MAX_RUNNING, plan_slots, snapshot_budget, state_bytes, state_shapes
from engine.runtime.kv_cache import allocate_each
from kernels_pyx.arena import Arena

__all__ = ["MAX_RUNNING", "LayerState", "StatePool", "plan_slots", "snapshot_budget", "state_bytes"]


@dataclass(frozen=True, slots=True)
class LayerState:
    """A layer's states, slot after slot of slot_bytes each."""

    arena: Arena
    slot_bytes: int

    @property
    def address(self) -> int:
        """Of slot 0."""
        return self.arena.address


class StatePool:
    """Slots of memory that is taken as they are first written. layers: the states of each layer, in memory of its own."""

    def __init__(
        self, spec: ModelSpec, n_slots: int, *, layers: frozenset[int] | None = None, beside: StatePool | None = None
    ) -> None:
        """n_slots: see `plan_slots`. layers: those whose states lie here, None: all; the slots are those of the whole model.

        beside: a pool of the same model and slots, whose layers are shared with it.

        Raises:
            OutOfMemory: more than is free.
        """
        sizes = {layer: 4 * shape.state_floats for layer, shape in state_shapes(spec) if layers is None or layer in layers}
        self.n_slots = n_slots
        self.nbytes = self.n_slots * sum(sizes.values())
        known = {} if beside is None else beside.layers
        wanted = {layer: n_slots * nbytes for layer, nbytes in sizes.items() if n_slots and layer not in known}
        arenas = allocate_each(wanted, "the state of recurrent layers", "allow fewer snapshots")
        self.layers: dict[int, LayerState] = {
            layer: known[layer] if layer in known else LayerState(arenas[layer], nbytes) for layer, nbytes in sizes.items()
        }
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

    def go_on(self, other: StatePool) -> None:
        """Sequences of batches that name no slots go on where they are in the other pool."""
        self._newest[:] = other._newest

    def close(self) -> None:
        """Lets go of the memory, which goes back where no other pool shares it. Idempotent."""
        self.layers.clear()
