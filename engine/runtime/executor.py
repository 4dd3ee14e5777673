"""One step of a model that lies wholly in the machine's memory: picks the program for the batch, runs it in one call, and says
what went wrong. `gpu_executor` runs models of which a part lies on a GPU."""

from __future__ import annotations

import time
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.arch.spec import ModelSpec
from engine.errors import Cancelled, InvalidRequest
from engine.graph.ops import Graph
from engine.placement.options import KV_TYPES
from engine.placement.placement import Placement
from engine.program.plan import Lane, Plan
from engine.runtime.buckets import lower_all, pick
from engine.runtime.choices import StepChoices
from engine.runtime.cpu_programs import CpuPrograms, not_finite, refused
from engine.runtime.derived import DerivedWeights, derived_parts
from engine.runtime.descriptor import Memory
from engine.runtime.kv_cache import BLOCK, KvCache
from engine.runtime.rope_table import RopeTables
from engine.runtime.states import StatePool
from engine.runtime.step import StepBatch
from engine.runtime.weights import Weights
from kernels_pyx.executor import AbortFlag


class PlanRunner(Protocol):
    """What runs the plans of a model, wherever its parts lie."""

    profile: bool
    last_step_s: float
    choices: StepChoices

    @property
    def plans(self) -> tuple[Plan, ...]:
        """One per phase and bucket."""

    def step(self, batch: StepBatch) -> npt.NDArray[np.float32]:
        """Logits [n_out, n_vocab]."""

    def op_times(self) -> tuple[tuple[str, float], ...]:
        """(op, seconds) of the last step that ran while `profile` was set."""

    def close(self) -> None:
        """Gives everything back."""


class Executor:
    """The plans of a model as CPU programs over one arena and one team of workers. Used by one thread."""

    def __init__(
        self,
        spec: ModelSpec,
        graph: Graph,
        placement: Placement,
        weights: Weights,
        cache: KvCache,
        states: StatePool,
        types: dict[str, int],
        abort: AbortFlag,
        *,
        n_ctx: int,
        prefill_chunk: int,
        f32: bool,
    ) -> None:
        """Compiles every phase and bucket and starts the workers. types: ggml type id of each tensor.

        Raises:
            InvalidRequest: a chunk size that is out of range. OutOfMemory: no room for the buffers.
            UnsupportedModel, GgufError: see `Weights`. Cancelled: the flag was set while weights were derived.
        """
        self.plans = lower_all(spec, graph, placement, types, prefill_chunk, f32=f32)
        self._n_vocab = spec.n_vocab
        self._abort = abort
        self._states = states
        self.last_step_s = 0.0
        self.profile = False
        self._times: tuple[tuple[str, float], ...] = ()
        self.ropes = RopeTables(weights, -(-n_ctx // BLOCK) * BLOCK)
        self.derived = DerivedWeights(weights, derived_parts(spec), abort, f32=f32)
        k_type, v_type = KV_TYPES.index(placement.k_type), KV_TYPES.index(placement.v_type)
        self.choices = StepChoices(spec)
        memory = Memory(weights, self.derived, self.ropes, cache.layers, k_type, v_type, states, self.choices)
        n_blocks = [group.n_blocks for group in cache.groups]
        self._cpu = CpuPrograms(self.plans, memory, placement.workers, n_blocks, n_ctx=n_ctx, f32=f32)
        self.workspace_bytes = self._cpu.workspace_bytes

    def step(self, batch: StepBatch) -> npt.NDArray[np.float32]:
        """Logits [n_out, n_vocab] f32 of the rows that the batch names.

        Raises:
            Cancelled: the abort flag was set. EngineError: values that are not finite; the message names the layer.
            InvalidRequest: a batch that does not fit the model or its caches.
        """
        if not self._cpu.compiled:
            raise InvalidRequest("the model is closed")
        if self._abort.is_set:
            raise Cancelled("the step was stopped")
        index = pick(self.plans, batch)
        chosen = self._cpu.compiled[index]
        assert chosen is not None
        logits = np.empty((len(batch.out_rows), self._n_vocab), np.float32)
        times = np.zeros(chosen.program.n_ops, np.int64) if self.profile else None
        n_seqs, use = len(batch.block_tables), batch.states
        if self._states.n_slots and use is None:
            use = self._states.own(n_seqs)
        started = time.perf_counter()
        try:
            aborted, bad_op = chosen.program.run(
                batch.token_ids,
                batch.positions,
                batch.seq_of_row,
                self._cpu.fill_tables(batch),
                batch.out_rows,
                logits,
                self._abort,
                times,
                use,
            )
        except ValueError as error:
            raise refused(error) from error
        self.last_step_s = time.perf_counter() - started
        if times is not None:
            self._times = named_times(chosen.lane, times)
        if aborted:
            raise Cancelled("the step was stopped")
        if bad_op >= 0:
            raise not_finite(chosen.lane, bad_op)
        if batch.states is None:
            self._states.done(n_seqs)
        self.choices.read(batch, self.plans[index])
        return logits

    def op_times(self) -> tuple[tuple[str, float], ...]:
        """(op, seconds) of the last step that ran while `profile` was set."""
        return self._times

    def close(self) -> None:
        """Ends the workers and drops the programs. Idempotent."""
        self._cpu.close()


def named_times(lane: Lane, times: npt.NDArray[np.int64]) -> tuple[tuple[str, float], ...]:
    """(op, seconds) of a lane's ops. times: in ns."""
    return tuple(
        (f"{op.unit} {type(op).__name__.removeprefix('Lane').lower()}", ns * 1e-9)
        for op, ns in zip(lane.ops, times.tolist(), strict=True)
    )
