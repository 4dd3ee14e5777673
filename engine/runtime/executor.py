"""One step of a loaded model: picks the compiled program for the batch, runs it in one call, and says what went wrong."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.arch.spec import Mla, ModelSpec
from engine.errors import Cancelled, EngineError, InvalidRequest
from engine.graph.ops import Graph
from engine.placement.options import KV_TYPES
from engine.placement.placement import Placement
from engine.program.lane_latent import ABSORBED_ROWS
from engine.program.lower import DECODE_BUCKETS, lower
from engine.program.plan import Plan
from engine.runtime.cpu_lane import describe
from engine.runtime.derived import DerivedWeights
from engine.runtime.descriptor import Memory
from engine.runtime.kv_cache import BLOCK, KvCache, allocate
from engine.runtime.rope_table import RopeTables
from engine.runtime.states import StatePool
from engine.runtime.step import StepBatch
from engine.runtime.weights import Weights
from kernels_pyx.executor import AbortFlag, CpuProgram
from kernels_pyx.pool import Pool

MAX_CHUNK = 4096


@dataclass(frozen=True, slots=True)
class _Compiled:
    plan: Plan
    program: CpuProgram


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
        if not 1 <= prefill_chunk <= MAX_CHUNK:
            raise InvalidRequest(f"a prefill chunk of {prefill_chunk} tokens was asked for; use 1 to {MAX_CHUNK}")
        self._n_vocab = spec.n_vocab
        self._abort = abort
        self._states = states
        self._tables = np.zeros((len(cache.groups), 1, -(-n_ctx // BLOCK)), np.int32)
        self.last_step_s = 0.0
        self.profile = False
        self._times: tuple[tuple[str, float], ...] = ()
        plans = [lower(graph, placement, "decode", rows, types, f32=f32) for rows in DECODE_BUCKETS]
        largest = max(prefill_chunk, DECODE_BUCKETS[-1] + 1)
        latent = any(isinstance(block.mixer, Mla) for block in spec.blocks)
        chunks = (ABSORBED_ROWS, largest) if latent and largest > ABSORBED_ROWS else (largest,)
        plans += [lower(graph, placement, "prefill", rows, types, f32=f32) for rows in chunks]
        self.ropes = RopeTables(weights, -(-n_ctx // BLOCK) * BLOCK)
        self.derived = DerivedWeights(weights, spec, abort, f32=f32)
        memory = Memory(
            weights,
            self.derived,
            self.ropes,
            cache.layers,
            KV_TYPES.index(placement.k_type),
            KV_TYPES.index(placement.v_type),
            states,
        )
        arena = allocate(max(plan.arena_bytes for plan in plans), "the working memory", "choose a smaller prefill chunk")
        self._pool = Pool(placement.workers.cores)
        self._compiled: list[_Compiled] = []
        for plan in plans:
            made = describe(plan.lanes[0], memory, f32=f32)
            program = CpuProgram(
                made.ops,
                arena,
                self._pool,
                max_rows=plan.max_rows,
                max_position=n_ctx,
                n_blocks=[group.n_blocks for group in cache.groups],
                n_states=states.n_slots,
                keep=made.keep,
            )
            self._compiled.append(_Compiled(plan, program))
        self.workspace_bytes = arena.nbytes + sum(one.program.scratch_bytes for one in self._compiled)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """One per phase and bucket."""
        return tuple(one.plan for one in self._compiled)

    def step(self, batch: StepBatch) -> npt.NDArray[np.float32]:
        """Logits [n_out, n_vocab] f32 of the rows that the batch names.

        Raises:
            Cancelled: the abort flag was set. EngineError: values that are not finite; the message names the layer.
            InvalidRequest: a batch that does not fit the model or its caches.
        """
        if not self._compiled:
            raise InvalidRequest("the model is closed")
        if self._abort.is_set:
            raise Cancelled("the step was stopped")
        chosen = self._program_for(batch)
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
                self._fill_tables(batch),
                batch.out_rows,
                logits,
                self._abort,
                times,
                use,
            )
        except ValueError as error:
            raise InvalidRequest(f"the step cannot run: {error}") from error
        self.last_step_s = time.perf_counter() - started
        if times is not None:
            self._times = _named(chosen.plan, times)
        if aborted:
            raise Cancelled("the step was stopped")
        if bad_op >= 0:
            unit = chosen.plan.lanes[0].ops[bad_op].unit
            where = f"layer {unit.layer} ({unit.kind})" if unit.layer >= 0 else f"the {unit.kind}"
            raise EngineError(f"the model computed non-finite values in {where}; the file is probably damaged, get it again")
        if batch.states is None:
            self._states.done(n_seqs)
        return logits

    def op_times(self) -> tuple[tuple[str, float], ...]:
        """(op, seconds) of the last step that ran while `profile` was set."""
        return self._times

    def _program_for(self, batch: StepBatch) -> _Compiled:
        n_rows = len(batch.token_ids)
        one_row_each = n_rows == 1 or len(set(batch.seq_of_row.tolist())) == n_rows
        for compiled in self._compiled:
            if n_rows <= compiled.plan.max_rows and (one_row_each or compiled.plan.phase == "prefill"):
                return compiled
        raise InvalidRequest(f"a step of {n_rows} rows; the largest has {self._compiled[-1].plan.max_rows}")

    def _fill_tables(self, batch: StepBatch) -> npt.NDArray[np.int32]:
        n_groups, n_room, width = self._tables.shape
        n_seqs = len(batch.block_tables)
        if n_seqs != n_room:
            self._tables = np.zeros((n_groups, n_seqs, width), np.int32)
        for i, table in enumerate(batch.block_tables):
            used = min(table.shape[-1], width)
            self._tables[:, i, :used] = table[..., :used]
            self._tables[:, i, used : used + 1] = -1
        return self._tables

    def close(self) -> None:
        """Ends the workers and drops the programs. Idempotent."""
        self._compiled.clear()
        self._pool.close()


def _named(plan: Plan, times: npt.NDArray[np.int64]) -> tuple[tuple[str, float], ...]:
    return tuple(
        (f"{op.unit} {type(op).__name__.removeprefix('Lane').lower()}", ns * 1e-9)
        for op, ns in zip(plan.lanes[0].ops, times.tolist(), strict=True)
    )
