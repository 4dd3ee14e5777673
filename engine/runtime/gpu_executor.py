"""One step of a model of which a part lies on GPUs: the lanes of a plan, piece by piece, or all at once with a graph a GPU.

A piece of a GPU is enqueued and nobody waits for it; before a piece of the CPU runs, what GPUs send it must have arrived. Steps
of few rows have a fixed shape each, with padding rows, so that what a GPU does for them is captured once and replayed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.arch.spec import ModelSpec
from engine.errors import Cancelled, EngineBug, EngineError, InvalidNumbers, InvalidRequest
from engine.program.plan import Lane, Plan
from engine.runtime.batches import parts_of
from engine.runtime.buckets import pick
from engine.runtime.choices import Chosen, StepChoices
from engine.runtime.cpu_programs import CpuPrograms, not_finite, not_finite_in, refused
from engine.runtime.driver import DRIVER
from engine.runtime.gpu_bound import Binder, Bound
from engine.runtime.gpu_buffers import StepShape
from engine.runtime.gpu_inputs import MAX_SEQS, InputLayout
from engine.runtime.gpu_lane import GpuLane, GpuStream
from engine.runtime.gpu_logits import LogitRoom, LogitRooms
from engine.runtime.gpu_peers import Peers
from engine.runtime.gpu_side import GpuSide
from engine.runtime.gpu_stream_marks import StreamTimes
from engine.runtime.gpu_warmup import Warmer, needs_warmth
from engine.runtime.measured import Crossed, StepTimes, Timing, crossing
from engine.runtime.pinned import given_back_at_once
from engine.runtime.pool_keeper import PoolKeeper
from engine.runtime.residency import Holding
from engine.runtime.stamps import I64
from engine.runtime.states import StatePool
from engine.runtime.step import StepBatch
from engine.runtime.stream_choice import StreamChoice
from kernels_pyx.executor import AbortFlag
from kernels_pyx.handoff import Handoff

if TYPE_CHECKING:
    from engine.runtime.gpu_handoff import Meeting

F32 = npt.NDArray[np.float32]


class _Work:
    """What one step is asked to do, and where it goes. index: of the plan."""

    def __init__(self, index: int, batch: StepBatch, states: npt.NDArray[np.int32] | None, room: LogitRoom) -> None:
        self.index = index
        self.batch = batch
        self.states = states
        self.room = room
        self.logits = room.logits(len(batch.out_rows))


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
        choices: StepChoices,
        abort: AbortFlag,
        streamed: Plan | None,
        choice: StreamChoice,
        peers: Peers | None = None,
    ) -> None:
        """cpu: None where it has no part in any plan, `streamed` behind the others. Owns sides and cpu from now on.

        streamed: the plan of long chunks with the experts of the CPU on GPUs, see `gpu_stream`. peers: None: to be found out.

        Raises:
            OutOfMemory, DeviceLost.
        """
        self.plans = plans
        self.last_step_s = 0.0
        self.profile = self.measure = False
        self.measured: StepTimes | None = None
        self._timing: Timing | None = None
        self.crossed: Crossed = {}
        self._sides = sides
        self._cpu = cpu
        self._states = states
        self.choices = choices
        pooled = [(str(side.name), side.slots) for side in sides if side.slots is not None]
        self.pools = PoolKeeper(pooled, choices.moe) if pooled else None
        self._abort = abort
        self._times: tuple[tuple[str, float], ...] = ()
        self._rooms = LogitRooms(spec.n_vocab, pinned=needs_warmth(sides))
        self._all_plans = plans if streamed is None else (*plans, streamed)
        self._crossing = [crossing(plan) for plan in self._all_plans]
        self.stream_choice = choice
        self._binder = Binder(self._all_plans, sides, cpu, inputs, spec.n_vocab, peers)
        self.warmer = Warmer(self._all_plans, len(plans), sides, self._binder)
        self.notes = self._binder.peers.notes

    @property
    def sides(self) -> tuple[GpuSide, ...]:
        """What each GPU has of the model."""
        return self._sides

    @property
    def peers(self) -> Peers:
        """Which GPUs reach each other."""
        return self._binder.peers

    def warm_up(self, progress: Callable[[int, int], None], abort: AbortFlag | None = None) -> None:
        """See `Warmer.warm_up`. abort: None: what stops steps."""
        self.warmer.warm_up(progress, abort or self._abort)

    def step(self, batch: StepBatch) -> F32:
        """Logits [n_out, n_vocab] f32 of the rows that the batch names.

        Raises:
            Cancelled: the abort flag was set. EngineError: values that are not finite; the message names the layer.
            InvalidRequest: a batch that does not fit the model or its caches. DeviceLost, OutOfMemory.
        """
        if not self._sides:
            raise InvalidRequest("the model is closed")
        if len(batch.block_tables) > MAX_SEQS:
            return self._in_parts(batch)
        index = pick(self.plans, batch)
        if self.plans[index].phase == "prefill" and self.stream_choice.streams(len(batch.token_ids)):
            index = len(self.plans)
        plan = self._all_plans[index]
        n_rows, n_seqs, n_out = len(batch.token_ids), len(batch.block_tables), len(batch.out_rows)
        fixed = plan.phase == "decode" and n_seqs <= plan.max_rows and n_out <= plan.max_rows
        shape = StepShape(plan.max_rows, plan.max_rows, plan.max_rows) if fixed else StepShape(n_rows, n_seqs, n_out)
        states = batch.states
        if self._states.n_slots and states is None:
            states = self._states.own(n_seqs)
        bound = self._binder.bind(index, shape, beside=fixed)
        work = _Work(index, batch, states, self._rooms.take(n_out if bound.outputs is None else bound.outputs.n_out))
        if self.warmer.is_due(index, bound):
            self.warmer.make_ready(index, bound)
        bound.host.fill(batch, states)
        if self.pools is not None:
            self.pools.begin()
        self._timing = Timing(self._cpu_lane(index), None if self._cpu is None else self._cpu.teams) if self.measure else None
        started = time.perf_counter()
        try:
            if bound.meeting is None:
                self._run(bound, work)
            else:
                self._run_beside(bound, bound.meeting, work)
            self._finish(bound, work)
        except BaseException:
            self._settle()
            raise
        finally:
            self._binder.done(bound)
            for side in self._sides:
                side.rest()
        self.last_step_s = time.perf_counter() - started
        self._count_crossed(index, n_rows)
        if self._timing is not None:
            beside = None if bound.meeting is None else bound.meeting.stamps()
            self.measured = self._timing.result(self._cpu_lane(index), beside, self.last_step_s)
        if plan.phase == "prefill":
            self._learn(n_rows, streamed=index == len(self.plans))
        if self.profile and (index < len(self.plans) or needs_warmth(self._sides)):
            self._times = self._time(bound)
        if batch.states is None:
            self._states.done(n_seqs)
        self.choices.read(batch, plan)
        if self.pools is not None:
            self.pools.end(self.choices.last, plan.phase, self.last_step_s)
        return work.logits

    def _count_crossed(self, index: int, n_rows: int) -> None:
        row = self._crossing[index]
        self.crossed = {device: (n_rows * come, n_rows * left) for device, (come, left) in row.items()}
        for side in self._sides if index == len(self.plans) else ():
            if side.experts is not None and side.experts.times is not None:
                come, left = self.crossed.get(str(side.name), (0, 0))
                self.crossed[str(side.name)] = come + side.experts.times.nbytes, left

    def _cpu_lane(self, index: int) -> Lane | None:
        compiled = None if self._cpu is None else self._cpu.compiled[index]
        return None if compiled is None else compiled.lane

    def _in_parts(self, batch: StepBatch) -> F32:
        logits: list[F32] = []
        chosen: list[Chosen] = []
        for part in parts_of(batch, MAX_SEQS):
            logits.append(self.step(part))
            chosen += self.choices.last
        self.choices.last = tuple(chosen)
        return np.concatenate(logits)

    def _learn(self, n_rows: int, *, streamed: bool) -> None:
        self.stream_choice.took(n_rows, self.last_step_s, streamed=streamed)
        if streamed and self.stream_times:
            self.stream_choice.measured(min(one.gbps for one in self.stream_times))

    @property
    def stream_times(self) -> tuple[StreamTimes, ...]:
        """Of each real GPU to which experts were brought, the last time."""
        brings = (side.experts for side in self._sides)
        return tuple(one.times for one in brings if one is not None and one.times is not None)

    def replay_s(self, n: int = 20) -> float:
        """Seconds that GPUs take for their part of a decoded token, without what the host does beside it."""
        bound = self._binder.bind(0, StepShape(1, 1, 1), beside=True)
        if bound.meeting is not None:
            bound.meeting.host.stop()
        started = time.perf_counter()
        for _ in range(n):
            for piece in bound.pieces:
                lane = bound.lanes[piece.lane]
                if lane is not None:
                    lane.run(piece.first, piece.end)
        self._settle()
        seconds = (time.perf_counter() - started) / n
        if bound.meeting is not None:
            bound.meeting.reset()
        return seconds

    def holdings(self) -> tuple[Holding, ...]:
        """What the model holds on GPUs by now."""
        return tuple(one for side in self._sides for one in side.holdings())

    def op_times(self) -> tuple[tuple[str, float], ...]:
        """(kind of op, seconds in all layers) of what GPUs did in the last step that ran while `profile` was set."""
        return self._times

    def _time(self, bound: Bound) -> tuple[tuple[str, float], ...]:
        if bound.meeting is not None:
            bound.meeting.host.stop()  # takes do not wait
        lanes = [lane for lane in bound.lanes if lane is not None]
        decode = bound.plan.phase == "decode"
        found = tuple(one for lane in lanes for one in (lane.time_kinds() if decode else lane.time_in_order()))
        if bound.meeting is not None:
            bound.meeting.reset()
        for side in self._sides:
            side.rest()
        return found

    def _run(self, bound: Bound, work: _Work) -> None:
        """One piece after another, and waits for the last."""
        before: GpuLane | None = None
        running: list[GpuLane] = []
        for piece in bound.pieces:
            if self._abort.is_set:
                raise Cancelled("the step was stopped")
            lane, began = bound.lanes[piece.lane], time.monotonic_ns()
            marks: I64 | None = None
            if lane is None:
                for one in running:
                    one.stream.synchronize()
                running, before = [], None
                self._run_cpu(work, piece.first, piece.end)
            else:
                if before is not None:
                    lane.stream.after(before.stream)
                if self._timing is not None:
                    marks = lane.run_marked(piece.first, piece.end)
                else:
                    lane.run(piece.first, piece.end)
                before = lane
                running.append(lane)
            if self._timing is not None:
                if lane is not None:
                    lane.stream.synchronize()
                self._timing.turn(bound.plan.lanes[piece.lane], piece.first, piece.end, began, marks)
        for stream in (*self._bring(bound, work), *(one.stream for one in running)):
            stream.synchronize()

    def _settle(self) -> None:
        """Waits for what a step that failed has enqueued: it still reads the inputs that the next one will overwrite."""
        for side in self._sides:
            with suppress(EngineError):
                side.stream.synchronize()
        if self.pools is not None:
            with suppress(EngineError):
                self.pools.settle()

    def _run_beside(self, bound: Bound, meeting: Meeting, work: _Work) -> None:
        """All lanes at once, and waits for the last. Nobody else has the driver until the CPU's part runs, see `driver`."""
        if self._abort.is_set:
            raise Cancelled("the step was stopped")
        meeting.next_step()
        DRIVER.take()
        try:
            for piece in bound.pieces:
                lane = bound.lanes[piece.lane]
                if lane is not None:
                    lane.run(piece.first, piece.end)
            if self._cpu is not None and self._cpu.compiled[work.index] is not None:
                self._run_cpu(work, 0, -1, meeting.host)
                if self._timing is not None and (cpu := self._cpu_lane(work.index)) is not None:
                    self._timing.cpu_ended(cpu)
            DRIVER.let_go()
            self._bring(bound, work)
        except BaseException:
            meeting.host.stop()  # GPUs may still wait
            raise
        finally:
            DRIVER.let_go()
            for side in self._sides:
                side.stream.synchronize()
            problem = meeting.problem()
            if problem is not None:
                meeting.reset()
        if problem is not None:
            raise problem

    def _run_cpu(self, work: _Work, first: int, end: int, handoff: Handoff | None = None) -> None:
        compiled = None if self._cpu is None else self._cpu.compiled[work.index]
        if self._cpu is None or compiled is None:
            raise EngineBug("a plan has a piece of the CPU that was not compiled")
        batch = work.batch
        try:
            aborted, bad_op = compiled.program.run(
                batch.token_ids,
                batch.positions,
                batch.seq_of_row,
                self._cpu.fill_tables(batch),
                batch.out_rows,
                work.logits,
                self._abort,
                None if self._timing is None else self._timing.cpu_ns,
                work.states,
                first=first,
                end=end,
                handoff=handoff,
                let_go=None if handoff is None else DRIVER.lock,
                worker_ns=None if self._timing is None else self._timing.worker_ns,
            )
        except ValueError as error:
            raise refused(error) from error
        if aborted and self._abort.is_set:
            raise Cancelled("the step was stopped")
        if bad_op >= 0:
            raise not_finite(compiled.lane, bad_op)

    def _finish(self, bound: Bound, work: _Work) -> None:
        """Looks for the cause where logits are not finite."""
        if bound.outputs is not None and not work.room.finite(len(work.logits)):
            raise self._cause(bound, work)

    def _bring(self, bound: Bound, work: _Work) -> tuple[GpuStream, ...]:
        """Enqueues the copy of the logits, behind the lane that makes them; who is to be waited for."""
        if bound.outputs is None or self._binder.head is None or not len(work.logits):
            return ()
        stream = self._binder.head.stream
        bound.outputs.bring(stream, work.room.floats)
        return (stream,)

    def _cause(self, bound: Bound, work: _Work) -> EngineError:
        """Runs the step again, piece by piece and op by op: what it writes, it wrote before."""
        if bound.meeting is not None:
            bound = self._binder.bind(work.index, bound.shape, beside=False)
            bound.host.fill(work.batch, work.states)
        again = _Work(work.index, work.batch, work.states, self._rooms.take(work.room.shape[0]))
        for piece in bound.pieces:
            lane = bound.lanes[piece.lane]
            if lane is None:
                self._run_cpu(again, piece.first, piece.end)
                continue
            call = lane.first_bad(piece.first, piece.end)
            if call is not None:
                return not_finite_in(call.unit)
            lane.stream.synchronize()
        return InvalidNumbers("the model computed non-finite values; the file is probably damaged, get it again")

    @property
    def is_cold(self) -> bool:
        """Whether some kind of decode step would first have to be compiled and captured."""
        return self.warmer.next_cold() is not None

    def warm_next(self) -> None:
        """Compiles and captures one: seconds, in which no step can be made."""
        self.warmer.warm_next()

    def settle(self) -> None:
        """What this was built beside is about to go: nothing is shared with it from now on that is not shared yet."""
        for side in self._sides:
            side.settle()

    @given_back_at_once()
    def close(self) -> None:
        """Ends the workers and frees everything on every device. Idempotent."""
        for part in (self._binder, self.pools, *self._sides, self._cpu):
            if part is not None:
                part.close()
        self._sides = ()
