"""A model as one placement has it: what runs its steps, its caches and states, and what that takes. Built by `build`; a loaded
model has one, and two while it moves from one placement to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.placement.placement import Device, Placement
from engine.runtime.cpu_programs import CpuPrograms
from engine.runtime.derived import DerivedWeights
from engine.runtime.executor import PlanRunner
from engine.runtime.kv_cache import KvCache
from engine.runtime.residency import Holding
from engine.runtime.spreading import Spreading
from engine.runtime.states import StatePool


@dataclass(frozen=True, slots=True)
class Placed:
    """Ready to step. Parts that lie where they lay before are shared with the `Placed` that it was built beside.

    state_slots: see `plan_slots`; holdings: of the CPU, those of GPUs are asked of the executor; on_cpu: tensors that the CPU
    reads; turned: those that it reads transposed; names: of GPUs; notes: what of this placement could not be done; programs: None
    where the CPU has no part in any step; moved_bytes: of weights that were brought for it, uploaded_bytes: of these, to
    GPUs; spreading: over nodes of memory.
    """

    placement: Placement
    executor: PlanRunner
    programs: CpuPrograms | None
    derived: DerivedWeights
    cache: KvCache
    states: StatePool
    state_slots: tuple[int, int]
    holdings: tuple[Holding, ...]
    on_cpu: frozenset[str]
    turned: frozenset[str]
    names: Mapping[Device, str]
    notes: tuple[str, ...] = ()
    moved_bytes: int = 0
    uploaded_bytes: int = 0
    spreading: Spreading | None = None

    def close(self) -> None:
        """Gives back what nobody shares. Idempotent."""
        self.executor.close()
        self.cache.close()
        self.states.close()
        if self.spreading is not None and self.spreading.weights is not None:
            self.spreading.weights.close()
