"""What one kind of step does: lanes of fused ops over laid-out buffers. Frozen; holds no address and no data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from engine.graph.ops import Buffer
from engine.placement.placement import Device, Gpu
from engine.program.fuse import Phase
from engine.program.lane_ops import LaneOp, LaneSpread, reads, writes
from engine.program.lane_transfer import LaneRecv, LaneSend

SlotKind = Literal["f32", "i32", "acts", "partials", "routes"]


@dataclass(frozen=True, slots=True)
class Slot:
    """A buffer of a lane in its memory, alive from op `first` to op `last` and while others run beside those.

    rows, width: of values, `rows` being the most that a step has; stride: bytes from row to row (of one layout, for acts). What a
    lane is sent lives from where it may arrive, what it sends until it must have been read.

    On the CPU act_offsets: per layout of the kernels, -1 = not held. On a GPU rows lie without gaps, and `acts` has room for all
    that `engine.triton_kernels.tensors.Acts` may hold, see `engine.program.gpu_slots`.
    """

    name: str
    kind: SlotKind
    offset: int
    nbytes: int
    stride: int
    first: int
    last: int
    act_offsets: tuple[int, int, int] = (-1, -1, -1)
    act_strides: tuple[int, int, int] = (0, 0, 0)
    rows: int = 0
    width: int = 0


class Slots(Mapping[str, Slot]):
    """Slots by name, made when somebody asks for one: of most plans nobody does before their first step."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], dict[str, Slot]]) -> None:
        self._make: Callable[[], dict[str, Slot]] | None = make
        self._made: dict[str, Slot] = {}

    def _all(self) -> dict[str, Slot]:
        make = self._make
        if make is not None:
            self._made = make()
            self._make = None
        return self._made

    def __getitem__(self, name: str) -> Slot:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __eq__(self, other: object) -> bool:
        return self._all() == dict(other) if isinstance(other, Mapping) else NotImplemented

    def __repr__(self) -> str:
        return repr(self._all())


@dataclass(frozen=True, slots=True)
class Lane:
    """The ops of one device, in order, and its buffers by name. meets: for each op, whether all workers meet after it.

    logits: the buffer that the step gives back, which has no slot; None where another lane makes it. team_meets: for each op that
    is a node's part, whether the workers of that node meet after it; () where there are none.
    """

    device: Device
    ops: tuple[LaneOp, ...]
    meets: tuple[bool, ...]
    slots: Mapping[str, Slot]
    arena_bytes: int
    logits: Buffer | None
    team_meets: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """Ops [first, end) of a lane."""

    lane: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """What crosses with one flag: op `send` of lane `source` to op `recv` of lane `target`."""

    flag: int
    source: int
    send: int
    target: int
    recv: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps of `phase` with up to max_rows rows. f32: linears take f32 activations.

    exchanges: by flag. schedule: pieces of lanes in an order in which each finds what it needs: run one after another they make
    the step. Lanes that run side by side wait for each other at their exchanges alone.
    """

    phase: Phase
    max_rows: int
    f32: bool
    lanes: tuple[Lane, ...]
    exchanges: tuple[Exchange, ...]
    schedule: tuple[Segment, ...]

    @property
    def arena_bytes(self) -> int:
        """Bytes of all arenas."""
        return sum(lane.arena_bytes for lane in self.lanes)

    def lane_of(self, device: Device) -> Lane | None:
        """The lane of a device, if it has any part in the step."""
        return next((lane for lane in self.lanes if lane.device == device), None)

    def explain(self) -> str:
        """The plan as text, one op a line."""
        exact = ", f32 activations" if self.f32 else ""
        lines = [f"{self.phase}[{self.max_rows}]: {self.arena_bytes} bytes of buffers{exact}"]
        for lane in self.lanes:
            lines.append(f"  {lane.device}: {len(lane.ops)} ops")
            lines += [f"  {i:4} {_line(op)}" for i, op in enumerate(lane.ops)]
        if len(self.lanes) > 1:
            pieces = ", ".join(f"{self.lanes[one.lane].device}[{one.first}:{one.end}]" for one in self.schedule)
            lines.append(f"  {len(self.exchanges)} exchanges; in order: {pieces}")
        return "\n".join(lines)


def crossing_bytes(plan: Plan, lane: Lane) -> int:
    """Bytes of the largest buffer that a GPU's lane exchanges with the CPU's, as it lies there: copies take the gaps along."""
    sizes = [0]
    for known in plan.exchanges:
        ends = [(plan.lanes[known.source], known.send), (plan.lanes[known.target], known.recv)]
        if any(one is lane for one, _ in ends):
            for one, at in ends:
                op = one.ops[at]
                if not isinstance(one.device, Gpu) and isinstance(op, LaneSend | LaneRecv):
                    sizes += [one.slots[buffer.name].nbytes for buffer in op.buffers]
    return max(sizes)


def _line(op: LaneOp) -> str:
    name = f"{op.unit!s:<10} {type(op).__name__.removeprefix('Lane').lower():<9}"
    if isinstance(op, LaneSend):
        return f"{name} {_names(op.buffers)} -> {op.to} ({op.flag})"
    if isinstance(op, LaneRecv):
        return f"{name} {op.source} ({op.flag}) -> {_names(op.buffers)}"
    part = op.part if isinstance(op, LaneSpread) else None
    where = "" if part is None else f" (node {part.node}{''.join(f', {first}:{end}' for first, end in part.ranges)})"
    return f"{name} {_names(reads(op))} -> {_names(writes(op))}{where}"


def _names(buffers: tuple[Buffer, ...]) -> str:
    return ", ".join(buffer.name for buffer in buffers)
