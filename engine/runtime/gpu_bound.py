"""Plans bound to the tensors of every device for steps of one shape, kept as long as they are likely to be wanted again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.placement.placement import Device, Gpu
from engine.program.plan import Plan, Segment
from engine.runtime.cpu_programs import CpuPrograms
from engine.runtime.gpu import GpuDevice
from engine.runtime.gpu_buffers import LaneTensors, StepShape
from engine.runtime.gpu_exchange import Neighbours, host_views
from engine.runtime.gpu_inputs import HostInputs, InputLayout
from engine.runtime.gpu_lane import GpuLane, Outputs
from engine.runtime.gpu_logits import KEPT_OUT
from engine.runtime.gpu_peers import Peers, try_peers
from engine.runtime.gpu_side import GpuSide
from engine.runtime.pinned import Pinned, bytes_of

if TYPE_CHECKING:
    from engine.runtime.gpu_handoff import Meeting

KEPT_SHAPES = 4
"""Shapes of prefill steps that stay bound: binding takes some milliseconds, and most chunks are of one size."""
MOST_PIECES = 8


@dataclass(slots=True, eq=False)
class Bound:
    """A plan in steps of one shape. lanes: by lane of the plan, None for the CPU's. made: logits that were taken for it alone.

    meeting: where the lanes run side by side; None: their pieces run one after another. uses: steps so far; ready: captured.
    """

    plan: Plan
    shape: StepShape
    host: HostInputs
    lanes: tuple[GpuLane | None, ...]
    outputs: Outputs | None
    made: tuple[GpuSide, Tensor] | None
    meeting: Meeting | None
    uses: int = 0
    ready: bool = False

    @property
    def capturable(self) -> bool:
        """Whether the pieces of GPUs are worth a graph each: few, and without copies between GPUs, which no graph holds."""
        n_gpus = sum(lane is not None for lane in self.lanes)
        one_by_one = n_gpus == 1 and len(self.pieces) <= MOST_PIECES
        return self.made is None and (one_by_one or self.meeting is not None)

    @property
    def pieces(self) -> Sequence[Segment]:
        """What is run at once: pieces, or whole lanes where they run side by side."""
        if self.meeting is None:
            return self.plan.schedule
        return [Segment(i, 0, len(lane.ops)) for i, lane in enumerate(self.plan.lanes)]


Key = tuple[int, StepShape, bool]


class Binder:
    """Binds the plans of a model. Owns the pinned memory through which steps go in. head: who makes logits, None: the CPU."""

    def __init__(
        self,
        plans: tuple[Plan, ...],
        sides: Sequence[GpuSide],
        cpu: CpuPrograms | None,
        inputs: InputLayout,
        n_vocab: int,
        peers: Peers | None = None,
    ) -> None:
        """peers: what is known of the GPUs, None: it is tried out. Raises: OutOfMemory, DeviceLost."""
        self._plans = plans
        self._sides: dict[Device, GpuSide] = {side.name: side for side in sides}
        self._inputs = inputs
        self._n_vocab = n_vocab
        self._bound: OrderedDict[Key, Bound] = OrderedDict()
        self._closers: list[Callable[[], None]] = []
        devices = tuple(side.device for side in sides)
        n_words = inputs.most_words(plan.max_rows for plan in plans)
        out_words = KEPT_OUT * (n_vocab + 1)
        host = Pinned(4 * n_words, devices)
        self._closers.append(host.close)
        self._slots: Tensor | None = None
        self._cpu_bytes = 0 if cpu is None else cpu.weight_bytes
        if cpu is not None:
            self._slots = bytes_of(cpu.arena)
        self._words = host.bytes[: 4 * n_words].view(torch.int32)
        self.peers = try_peers(devices) if peers is None else peers
        with_head = [lane.device for lane in plans[0].lanes if lane.logits is not None]
        self.head = next((side for side in sides if side.name in with_head), None)
        self._logits: Tensor | None = None
        if self.head is not None:
            self._logits = self.head.memory.allocate((out_words,), torch.float32, "workspace", "the logits")

    @property
    def kept(self) -> tuple[tuple[int, Bound], ...]:
        """(index of the plan, what it is bound to) of every shape that is kept."""
        return tuple((key[0], bound) for key, bound in tuple(self._bound.items()))

    def bind(self, index: int, shape: StepShape, *, beside: bool) -> Bound:
        """Plan `index` in steps of `shape`. beside: lanes run side by side where that is a gain.

        Raises:
            OutOfMemory: no room for the logits of so many rows. DeviceLost.
        """
        key = index, shape, beside
        if key not in self._bound:
            self._bound[key] = self._make(index, shape, beside)
            self._forget_oldest()
        self._bound.move_to_end(key)
        return self._bound[key]

    def _make(self, index: int, shape: StepShape, beside: bool) -> Bound:
        plan = self._plans[index]
        host = HostInputs(self._inputs, shape, self._words.numpy())
        found: dict[Device, LaneTensors] = {}
        views: dict[Device, Mapping[str, Tensor]] = {}
        for lane in plan.lanes:
            side = self._sides.get(lane.device)
            if side is not None:
                found[lane.device] = side.tensors(plan, lane, shape)
                views[lane.device] = found[lane.device].tensors
            elif self._slots is not None:
                views[lane.device] = host_views(self._slots, lane, plan.max_rows, shape)
        meeting = self._meeting(plan) if beside else None
        flags = None if meeting is None else meeting.flags
        neighbours = Neighbours(plan, views, flags, self.peers.apart)
        outputs, made = self._outputs(shape)
        lanes: list[GpuLane | None] = []
        for lane in plan.lanes:
            side = self._sides.get(lane.device)
            if side is None:
                lanes.append(None)
                continue
            own = outputs if lane.logits is not None else None
            begin = None if flags is None else flags[lane.device].begin
            lanes.append(side.lane(lane, shape, found[lane.device], neighbours, host, self._words, own, begin))
        return Bound(plan, shape, host, tuple(lanes), outputs, made, meeting)

    def _meeting(self, plan: Plan) -> Meeting | None:
        if not runs_beside(plan, [side.device for side in self._sides.values()]):
            return None
        # Not with the module: emulated devices need no Triton.
        from engine.runtime.gpu_handoff import Meeting, wait_limit

        memories = {name: side.memory for name, side in self._sides.items()}
        meeting = Meeting(plan, memories, wait_limit(self._cpu_bytes))
        self._closers.append(meeting.close)
        return meeting

    def _outputs(self, shape: StepShape) -> tuple[Outputs | None, tuple[GpuSide, Tensor] | None]:
        if self.head is None or self._logits is None:
            return None, None
        size, n = shape.n_out * self._n_vocab, shape.n_out * (self._n_vocab + 1)
        both, made = self._logits[:n], None
        if shape.n_out > KEPT_OUT:
            both = self.head.memory.allocate((n,), torch.float32, "workspace", f"the logits of {shape.n_out} tokens")
            made = self.head, both
        return Outputs(both[:size].view(shape.n_out, self._n_vocab), both[size:], both), made

    def _forget_oldest(self) -> None:
        chunks = [key for key in self._bound if self._plans[key[0]].phase == "prefill"]
        for key in chunks[:-KEPT_SHAPES]:
            self._drop(key)

    def done(self, bound: Bound) -> None:
        """A step is over: what was taken for it alone is given back."""
        if bound.made is not None:
            for key in [key for key, one in self._bound.items() if one is bound]:
                self._drop(key)

    def _drop(self, key: Key) -> None:
        bound = self._bound.pop(key)
        for lane in bound.lanes:
            if lane is not None:
                lane.close()
        if bound.made is not None:
            side, tensor = bound.made
            side.memory.give_back(tensor, "workspace")

    def close(self) -> None:
        """Drops everything that is bound. Idempotent."""
        for key in tuple(self._bound):
            self._drop(key)
        self._logits = None
        for close in reversed(self._closers):
            close()
        self._closers.clear()
        self._slots = None
        self._words = torch.empty(0)
        self._sides.clear()
        self.head = None


def runs_beside(plan: Plan, devices: Sequence[GpuDevice]) -> bool:
    """Whether the lanes of a plan gain by running side by side: several pieces each, or several GPUs that meet."""
    several = len(plan.schedule) > len(plan.lanes) or sum(isinstance(lane.device, Gpu) for lane in plan.lanes) > 1
    return plan.phase == "decode" and several and all(not one.emulated for one in devices)
