"""One step of a model of which a part lies on GPUs: the lanes of a plan, piece by piece, or a graph for each piece.

A piece of a GPU is enqueued and nobody waits for it; before a piece of the CPU runs, what GPUs send it must have arrived. Steps
of few rows have a fixed shape each, with padding rows, so that what a GPU does for them is captured once and replayed.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.arch.spec import ModelSpec
from engine.errors import Cancelled, EngineBug, EngineError, InvalidRequest
from engine.placement.placement import Device
from engine.program.plan import Plan
from engine.runtime.buckets import pick
from engine.runtime.cpu_programs import Compiled, CpuPrograms, not_finite, refused
from engine.runtime.gpu_buffers import LaneTensors, StepShape
from engine.runtime.gpu_exchange import Neighbours, host_views
from engine.runtime.gpu_inputs import MAX_SEQS, HostInputs, InputLayout
from engine.runtime.gpu_lane import WARM_RUNS, GpuLane, Outputs
from engine.runtime.gpu_side import GpuSide
from engine.runtime.pinned import Pinned
from engine.runtime.states import StatePool
from engine.runtime.step import StepBatch
from kernels_pyx.arena import Arena
from kernels_pyx.executor import AbortFlag

KEPT_SHAPES = 4
"""Shapes of prefill steps that stay bound: binding takes some milliseconds, and most chunks are of one size."""
KEPT_OUT = 8
"""Wanted rows that always have room; for more it is taken for the step alone."""

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Bound:
    """A plan in steps of one shape. lanes: by lane of the plan, None for the CPU's. made: logits that were taken for it alone."""

    plan: Plan
    shape: StepShape
    host: HostInputs
    lanes: tuple[GpuLane | None, ...]
    outputs: Outputs | None
    made: tuple[GpuSide, Tensor] | None


class GpuExecutor:
    """The plans of a model over several devices. Used by one thread."""

    def __init__(
        self,
        spec: ModelSpec,
        plans: tuple[Plan, ...],
        sides: tuple[GpuSide, ...],
        cpu: CpuPrograms | None,
        states: StatePool,
        inputs: InputLayout,
        abort: AbortFlag,
    ) -> None:
        """cpu: None where it has no part in any plan. Owns sides and cpu from now on.

        Raises:
            OutOfMemory, DeviceLost.
        """
        self.plans = plans
        self.last_step_s = 0.0
        self.profile = False
        self._n_vocab = spec.n_vocab
        self._sides = {side.name: side for side in sides}
        self._cpu = cpu
        self._states = states
        self._inputs = inputs
        self._abort = abort
        self._times: tuple[tuple[str, float], ...] = ()
        self._bound: OrderedDict[tuple[int, StepShape], _Bound] = OrderedDict()
        self._closers: list[Callable[[], None]] = []
        devices = tuple(side.device for side in sides)
        n_words = inputs.most_words(plan.max_rows for plan in plans)
        out_words = KEPT_OUT * (spec.n_vocab + 1)
        self._host = Pinned(Arena(4 * (n_words + out_words)), devices)
        self._closers.append(self._host.close)
        self._slots: Pinned | None = None
        if cpu is not None:
            self._slots = Pinned(cpu.arena, devices)
            self._closers.append(self._slots.close)
        self._words = self._host.bytes[: 4 * n_words].view(torch.int32)
        self._out = self._host.bytes[4 * n_words :].view(torch.float32)
        with_head = [lane.device for lane in plans[0].lanes if lane.logits is not None]
        self._head = next((side for side in sides if side.name in with_head), None)
        self._logits: Tensor | None = None
        if self._head is not None:
            self._logits = self._head.memory.allocate((out_words,), torch.float32, "workspace", "the logits")

    def warm_up(self, progress: Callable[[int, int], None]) -> None:
        """Binds and captures every decode plan, the largest first, as all share what kernels take on the way.

        Raises:
            Cancelled: the flag was set. OutOfMemory, DeviceLost.
        """
        decode = [i for i, plan in enumerate(self.plans) if plan.phase == "decode"]
        for done, i in enumerate(reversed(decode)):
            if self._abort.is_set:
                raise Cancelled("loading was stopped")
            progress(done, len(decode))
            rows = self.plans[i].max_rows
            bound = self._bind(i, StepShape(rows, rows, rows))
            bound.host.fill(_NOTHING, None)
            real = [lane for lane in bound.lanes if lane is not None and not lane.stream.device.emulated]
            for _ in range(WARM_RUNS if real else 0):
                for piece in self.plans[i].schedule:
                    lane = bound.lanes[piece.lane]
                    if lane is not None:
                        lane.run(piece.first, piece.end)
            for lane in real:
                lane.stream.synchronize()
            for piece in self.plans[i].schedule if real else ():
                lane = bound.lanes[piece.lane]
                if lane is not None:
                    lane.capture(piece.first, piece.end)

    def step(self, batch: StepBatch) -> F32:
        """Logits [n_out, n_vocab] f32 of the rows that the batch names.

        Raises:
            Cancelled: the abort flag was set. EngineError: values that are not finite; the message names the layer where it can.
            InvalidRequest: a batch that does not fit the model or its caches. DeviceLost, OutOfMemory.
        """
        if not self._sides:
            raise InvalidRequest("the model is closed")
        if len(batch.block_tables) > MAX_SEQS:
            return np.concatenate([self.step(part) for part in _parts(batch)])
        index = pick(self.plans, batch)
        plan = self.plans[index]
        n_rows, n_seqs, n_out = len(batch.token_ids), len(batch.block_tables), len(batch.out_rows)
        fixed = plan.phase == "decode" and n_seqs <= plan.max_rows and n_out <= plan.max_rows
        shape = StepShape(plan.max_rows, plan.max_rows, plan.max_rows) if fixed else StepShape(n_rows, n_seqs, n_out)
        states = batch.states
        if self._states.n_slots and states is None:
            states = self._states.own(n_seqs)
        bound = self._bind(index, shape)
        bound.host.fill(batch, states)
        logits = np.empty((n_out, self._n_vocab), np.float32)
        started = time.perf_counter()
        try:
            self._run(bound, index, batch, states, logits)
            self._finish(bound, index, batch, states, logits)
        finally:
            if bound.made is not None:
                self._drop((index, shape))
        self.last_step_s = time.perf_counter() - started
        if self.profile:
            self._times = tuple(
                (call.name, seconds) for lane in bound.lanes if lane is not None for call, seconds in lane.time_calls()
            )
        if batch.states is None:
            self._states.done(n_seqs)
        return logits

    def op_times(self) -> tuple[tuple[str, float], ...]:
        """(op, seconds) of the GPUs' ops of the last step that ran while `profile` was set."""
        return self._times

    def _run(self, bound: _Bound, index: int, batch: StepBatch, states: npt.NDArray[np.int32] | None, logits: F32) -> None:
        """All pieces, and waits for the last."""
        before: GpuLane | None = None
        running: list[GpuLane] = []
        for piece in bound.plan.schedule:
            if self._abort.is_set:
                raise Cancelled("the step was stopped")
            lane = bound.lanes[piece.lane]
            if lane is None:
                for one in running:
                    one.stream.synchronize()
                running, before = [], None
                self._run_cpu(index, piece.first, piece.end, batch, states, logits)
                continue
            if before is not None:
                lane.stream.after(before.stream)
            lane.run(piece.first, piece.end)
            before = lane
            running.append(lane)
        for one in running:
            one.stream.synchronize()

    def _run_cpu(
        self, index: int, first: int, end: int, batch: StepBatch, states: npt.NDArray[np.int32] | None, logits: F32
    ) -> None:
        compiled = self._compiled(index)
        assert self._cpu is not None
        try:
            aborted, bad_op = compiled.program.run(
                batch.token_ids,
                batch.positions,
                batch.seq_of_row,
                self._cpu.fill_tables(batch),
                batch.out_rows,
                logits,
                self._abort,
                None,
                states,
                first,
                end,
            )
        except ValueError as error:
            raise refused(error) from error
        if aborted:
            raise Cancelled("the step was stopped")
        if bad_op >= 0:
            raise not_finite(compiled.lane, bad_op)

    def _compiled(self, index: int) -> Compiled:
        compiled = None if self._cpu is None else self._cpu.compiled[index]
        if compiled is None:
            raise EngineBug("a plan has a piece of the CPU that was not compiled")
        return compiled

    def _finish(self, bound: _Bound, index: int, batch: StepBatch, states: npt.NDArray[np.int32] | None, logits: F32) -> None:
        """Takes the logits over, and looks for the cause where they are not finite."""
        if bound.outputs is None or not len(logits):
            return
        rows, sums = bound.outputs.rows(len(logits))
        if not bool(torch.isfinite(sums).all()):
            raise self._cause(bound, index, batch, states)
        logits[:] = rows.numpy()

    def _cause(self, bound: _Bound, index: int, batch: StepBatch, states: npt.NDArray[np.int32] | None) -> EngineError:
        """Runs the step again, op by op: what it writes, it wrote before."""
        scrap = np.empty((len(batch.out_rows), self._n_vocab), np.float32)
        for piece in bound.plan.schedule:
            lane = bound.lanes[piece.lane]
            if lane is None:
                self._run_cpu(index, piece.first, piece.end, batch, states, scrap)
                continue
            call = lane.first_bad(piece.first, piece.end)
            if call is not None:
                where = f"layer {call.unit.layer} ({call.unit.kind})" if call.unit.layer >= 0 else f"the {call.unit.kind}"
                return EngineError(f"the model computed non-finite values in {where}; the file is probably damaged, get it again")
            lane.stream.synchronize()
        return EngineError("the model computed non-finite values; the file is probably damaged, get it again")

    def _bind(self, index: int, shape: StepShape) -> _Bound:
        key = (index, shape)
        if key in self._bound:
            self._bound.move_to_end(key)
            return self._bound[key]
        plan = self.plans[index]
        host = HostInputs(self._inputs, shape, self._words.numpy())
        found: dict[Device, LaneTensors] = {}
        views: dict[Device, Mapping[str, Tensor]] = {}
        for lane in plan.lanes:
            side = self._sides.get(lane.device)
            if side is not None:
                found[lane.device] = side.tensors(plan, lane, shape)
                views[lane.device] = found[lane.device].tensors
            elif self._slots is not None:
                views[lane.device] = host_views(self._slots.bytes, lane, plan.max_rows, shape)
        neighbours = Neighbours(plan, views)
        outputs, made = self._outputs(shape)
        lanes: list[GpuLane | None] = []
        for lane in plan.lanes:
            side = self._sides.get(lane.device)
            if side is None:
                lanes.append(None)
                continue
            own = outputs if lane.logits is not None else None
            lanes.append(side.lane(lane, shape, found[lane.device], neighbours, host, self._words, own))
        bound = self._bound[key] = _Bound(plan, shape, host, tuple(lanes), outputs, made)
        self._forget_oldest()
        return bound

    def _outputs(self, shape: StepShape) -> tuple[Outputs | None, tuple[GpuSide, Tensor] | None]:
        if self._head is None or self._logits is None:
            return None, None
        n = shape.n_out * (self._n_vocab + 1)
        made = None
        both, host = self._logits[:n], self._out[:n]
        if shape.n_out > KEPT_OUT:
            both = self._head.memory.allocate((n,), torch.float32, "workspace", f"the logits of {shape.n_out} tokens")
            host, made = torch.empty(n), (self._head, both)
        size = shape.n_out * self._n_vocab
        return Outputs(both[:size].view(shape.n_out, self._n_vocab), both[size:], both, host), made

    def _forget_oldest(self) -> None:
        chunks = [key for key in self._bound if self.plans[key[0]].phase == "prefill"]
        for key in chunks[:-KEPT_SHAPES]:
            self._drop(key)

    def _drop(self, key: tuple[int, StepShape]) -> None:
        bound = self._bound.pop(key, None)
        if bound is None:
            return
        for lane in bound.lanes:
            if lane is not None:
                lane.close()
        if bound.made is not None:
            side, tensor = bound.made
            side.memory.give_back(tensor, "workspace")

    def close(self) -> None:
        """Ends the workers and frees everything on every device. Idempotent."""
        for key in tuple(self._bound):
            self._drop(key)
        self._logits = None
        for close in reversed(self._closers):
            close()
        self._closers.clear()
        for side in self._sides.values():
            side.close()
        self._sides.clear()
        if self._cpu is not None:
            self._cpu.close()


def _parts(batch: StepBatch) -> Iterator[StepBatch]:
    """A batch of one row for each of many sequences, in parts that a step takes, its wanted rows in the order of the batch."""
    order = np.argsort(batch.out_rows, kind="stable")
    if not np.array_equal(order, np.arange(len(order))) or not np.array_equal(batch.seq_of_row, np.arange(len(batch.token_ids))):
        raise InvalidRequest(f"a step of {len(batch.block_tables)} sequences whose rows are not in order; make it smaller")
    for start in range(0, len(batch.token_ids), MAX_SEQS):
        rows = slice(start, start + MAX_SEQS)
        wanted = batch.out_rows[(batch.out_rows >= start) & (batch.out_rows < start + MAX_SEQS)] - start
        yield StepBatch(
            batch.phase,
            batch.token_ids[rows],
            batch.positions[rows],
            batch.seq_of_row[rows] - start,
            batch.block_tables[rows],
            wanted.astype(np.int32),
            None if batch.states is None else batch.states[rows],
        )


_NOTHING = StepBatch(
    "decode",
    np.zeros(0, np.int32),
    np.zeros(0, np.int32),
    np.zeros(0, np.int32),
    (),
    np.zeros(0, np.int32),
)
