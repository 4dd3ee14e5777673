"""What is done before a shape of step runs for the first time: kernels are compiled, memory is taken, graphs are captured.

Called by the thread that steps, and for a placement that is built beside a running one by the thread that builds it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from engine.errors import Cancelled, DeviceLost, EngineError
from engine.program.plan import Plan
from engine.runtime.gpu_bound import Binder, Bound
from engine.runtime.gpu_buffers import StepShape
from engine.runtime.gpu_lane import WARM_RUNS, GpuLane
from engine.runtime.gpu_seen import kinds_of
from engine.runtime.gpu_side import GpuSide
from engine.runtime.laps import Laps
from engine.runtime.step import StepBatch
from engine.triton_kernels.compiling import NotCompiled
from kernels_pyx.executor import AbortFlag

log = logging.getLogger("engine")

Shapes = tuple[tuple[int, StepShape], ...]
"""(index of the plan, shape) of kinds of steps."""


class Warmer:
    """plans: all of a model, its own before those whose experts come on the way; n_own: how many those are."""

    def __init__(self, plans: tuple[Plan, ...], n_own: int, sides: Sequence[GpuSide], binder: Binder) -> None:
        self._known: defaultdict[tuple[int, StepShape, int], set[Hashable]] = defaultdict(set)
        """Kinds of ops that have run, by plan, shape and index of the GPU."""
        self._beside = False
        self._plans = plans
        self._n_own = n_own
        self._sides = sides
        self._binder = binder
        self._gave_up: set[int] = set()

    @property
    def in_use(self) -> Shapes:
        """Steps of few rows that have been captured by now."""
        return tuple((index, bound.shape) for index, bound in self._binder.kept if bound.ready and bound.plan.phase == "decode")

    def warm_up(
        self,
        progress: Callable[[int, int], None],
        abort: AbortFlag,
        also: Shapes = (),
        *,
        beside: bool = False,
        laps: Laps | None = None,
        there: Callable[[], None] = lambda: None,
    ) -> None:
        """Binds what most steps are: decode of one sequence, whole chunks of prompts; compiles and captures them on real devices.

        Other shapes are captured when they come for the first time (decode) or the second time (prompts), or here: `also`.

        beside: another placement of the model is answering meanwhile, and has used most kernels: of layers that are
        alike only one runs, and prompts are left alone of which every kind of op has run. there: called before anything
        runs, waits for the weights.

        Raises:
            Cancelled: the flag was set. OutOfMemory, DeviceLost. What `there` raises.
        """
        self._beside, laps = beside, laps or Laps()
        for side in self._sides:
            side.device.synchronize(here=beside)  # what was cleared and copied so far was enqueued on another stream
            if not beside:
                side.device.trim()
        usual = [(i, plan.max_rows) for i, plan in enumerate(self._plans) if plan.phase == "prefill" or plan.max_rows == 1]
        wanted = [(i, StepShape(rows, 1, 1)) for i, rows in usual]
        wanted += [(i, shape) for i, shape in also if (i, shape) not in wanted]
        for done, (i, shape) in enumerate(wanted):
            if abort.is_set:
                raise Cancelled("loading was stopped")
            progress(done, len(wanted))
            decode = self._plans[i].phase == "decode"
            if beside and not decode and self._is_known(i):
                continue
            with laps.lap("bind"):
                bound = self._binder.bind(i, shape, beside=decode)
            if not needs_warmth(self._sides) or self._passes_lent(i):
                continue
            there()
            with laps.lap(f"warm {self._plans[i].phase}"):
                if decode or not beside:
                    self.make_ready(i, bound)
                else:
                    self._run_new(i, bound)
            if not decode:
                self._note(i)

    def _is_known(self, index: int) -> bool:
        """Whether every kind of op in a plan has run on its GPU before, for another placement; the room that they need is there.

        Raises: OutOfMemory: it is not.
        """
        plan = self._plans[index]
        for side in self._sides:
            lane = plan.lane_of(side.name)
            if lane is not None and not kinds_of(lane, plan.max_rows, side.weights.format_of) <= side.seen.kinds:
                return False
        for side in self._sides:
            side.memory.require(max(0, side.seen.workspace - side.memory.held("workspace")), "the kernels' workspace")
        return True

    def _note(self, index: int) -> None:
        plan = self._plans[index]
        for side in self._sides:
            lane = plan.lane_of(side.name)
            if lane is not None:
                side.seen.kinds |= kinds_of(lane, plan.max_rows, side.weights.format_of)
                side.seen.workspace = side.memory.held("workspace")

    def next_cold(self) -> tuple[int, StepShape] | None:
        """The smallest kind of decode step that has not run yet and would be compiled and captured in the midst of an answer."""
        if not needs_warmth(self._sides):
            return None
        ready = {(index, bound.shape) for index, bound in self._binder.kept if bound.ready}
        for i, plan in enumerate(self._plans[: self._n_own]):
            shape = StepShape(plan.max_rows, plan.max_rows, plan.max_rows)
            if plan.phase == "decode" and (i, shape) not in ready and i not in self._gave_up:
                return i, shape
        return None

    def warm_next(self) -> None:
        """Warms that kind of step up; whether there was room will show when it comes."""
        cold = self.next_cold()
        if cold is None:
            return
        index, shape = cold
        try:
            bound = self._binder.bind(index, shape, beside=True)
            if bound.capturable:
                self.make_ready(index, bound)
        except EngineError as error:
            log.info("decode of %d sequences was not made ready: %s", shape.n_seqs, error)
        if self.next_cold() == cold:
            self._gave_up.add(index)

    def _passes_lent(self, index: int) -> bool:
        """Whether experts would come through a ring that another placement may be using."""
        return index >= self._n_own and any(side.experts is not None and side.experts.lent for side in self._sides)

    def make_ready(self, index: int, bound: Bound) -> None:
        """Runs what GPUs do on padding alone, so that all is compiled and all memory taken, and captures it."""
        bound.ready = True
        if self._beside and index < self._n_own and bound.capturable:
            self._run_new(index, bound)
            try:
                self._capture(bound, known=True)
                return
            except (NotCompiled, DeviceLost) as error:
                log.info("%s of %d rows is made ready from the beginning (%r)", bound.plan.phase, bound.shape.n_rows, error)
        bound.host.fill(_NOTHING, None)
        for _ in range(WARM_RUNS):
            self._run(bound, GpuLane.run)
        if index >= self._n_own or not bound.capturable:
            return  # experts come on the way, or rows cross
        self._capture(bound)

    @staticmethod
    def _capture(bound: Bound, *, known: bool = False) -> None:
        for piece in bound.pieces:
            lane = bound.lanes[piece.lane]
            if lane is not None:
                lane.capture(piece.first, piece.end, known=known)

    def _run_new(self, index: int, bound: Bound) -> None:
        """Runs layers of a new kind, on padding."""
        bound.host.fill(_NOTHING, None)
        lanes = {lane: lane.stream.device.index for lane in bound.lanes if lane is not None}
        new = {lane: lane.new_layers(self._known[index, bound.shape, device]) for lane, device in lanes.items()}
        self._run(bound, lambda lane, first, end: lane.run_layers(first, end, new[lane]))

    def is_due(self, index: int, bound: Bound) -> bool:
        """Whether a shape that is not captured comes often enough to be worth it."""
        bound.uses += 1
        if bound.ready or index >= self._n_own or not bound.capturable or not needs_warmth(self._sides):
            return False
        return bound.plan.phase == "decode" or bound.uses > 1

    def _run(self, bound: Bound, run: Callable[[GpuLane, int, int], None]) -> None:
        """Runs the pieces of GPUs; nobody waits for a CPU that has not begun."""
        if bound.meeting is not None:
            bound.meeting.host.stop()
        for piece in bound.pieces:
            lane = bound.lanes[piece.lane]
            if lane is not None:
                run(lane, piece.first, piece.end)
        for side in self._sides:
            side.stream.synchronize()
            side.rest()
        if bound.meeting is not None:
            bound.meeting.reset()


def needs_warmth(sides: Sequence[GpuSide]) -> bool:
    """Whether something is compiled or captured for these devices."""
    return not all(side.device.emulated for side in sides)


_NOTHING = StepBatch(
    "decode",
    np.zeros(0, np.int32),
    np.zeros(0, np.int32),
    np.zeros(0, np.int32),
    (),
    np.zeros(0, np.int32),
)
