"""Outlines and memory to a Plan, for one phase and bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

from engine.graph.ops import Buffer, Graph
from engine.placement.placement import Device, Gpu, Placement
from engine.program.exchanges import Stay, exchanges, schedule, stays
from engine.program.fuse import Phase
from engine.program.gpu_slots import GPU_ALIGN
from engine.program.joins import lives as joined_lives
from engine.program.lane_ops import (
    LaneExpertsDown,
    LaneExpertsUp,
    LaneLinear,
    LaneOp,
    LanePrepare,
    LaneRoute,
    matrices,
)
from engine.program.meetings import all_meetings, in_order
from engine.program.memory import ALIGN, Layout, Life, lay_out
from engine.program.outline import LaneOutline, outline, outline_buckets
from engine.program.plan import Exchange, Lane, Plan, Segment, Slot, Slots
from engine.program.sizes import ActsOf, Size, cpu_size, gpu_size, words_of
from engine.program.touches import Touches
from engine.quants.formats import BY_ID
from kernels_pyx.formats import ACTS

DECODE_BUCKETS = (1, 2, 4, 8)
"""Rows of the decode plans; a larger batch runs the prefill plan."""


def lower(
    graph: Graph, placement: Placement, phase: Phase, max_rows: int, types: Mapping[str, int], *, f32: bool = False
) -> Plan:
    """The plan of steps with up to max_rows rows. types: ggml type id of each tensor; f32: linears take f32 activations.

    Raises:
        PlacementError: see `outline`.
    """

    return lower_lanes(outline(graph, placement, phase, max_rows), phase, max_rows, types, f32=f32)


def lower_buckets(
    graph: Graph, placement: Placement, phase: Phase, buckets: Sequence[int], types: Mapping[str, int], *, f32: bool = False
) -> tuple[Plan, ...]:
    """A plan for each number of rows, see `lower`.

    Raises:
        PlacementError: see `outline`.
    """
    sketches = outline_buckets(graph, placement, phase, buckets)
    known = Known()
    pairs = reversed(list(zip(sketches, buckets, strict=True)))
    return tuple(lower_lanes(one, phase, rows, types, f32=f32, known=known) for one, rows in pairs)[::-1]


def lower_lanes(
    sketches: Sequence[LaneOutline],
    phase: Phase,
    max_rows: int,
    types: Mapping[str, int],
    *,
    f32: bool = False,
    known: Known | None = None,
) -> Plan:
    """The plan of outlined lanes. known: what was found of outlines of more rows, and is added to."""

    def act_of(weight: str) -> int:
        return 0 if f32 else ACTS.index(BY_ID[types[weight]].act)

    known = known or Known()
    frames = [known.frame(sketch, act_of) for sketch in sketches]
    meetings = known.meetings(frames)
    pairs = zip(sketches, frames, meetings.stays, strict=True)
    lanes = tuple(one.lane(stay, max_rows, act_of, sketch.logits) for sketch, one, stay in pairs)
    return Plan(phase, max_rows, f32, lanes, meetings.exchanges, meetings.schedule)


@dataclass(frozen=True, slots=True)
class _Meetings:
    """How lanes depend on each other."""

    exchanges: tuple[Exchange, ...]
    stays: tuple[Stay, ...]
    schedule: tuple[Segment, ...]


class Known:
    """What of plans does not depend on the number of rows, by the identity of their outlines, which live as long."""

    def __init__(self) -> None:
        self._frames: dict[int, _Frame] = {}
        self._meetings: dict[tuple[int, ...], _Meetings] = {}

    def frame(self, sketch: LaneOutline, act_of: ActsOf) -> _Frame:
        """Of a lane."""
        if id(sketch) not in self._frames:
            self._frames[id(sketch)] = _Frame(sketch.device, _ordered(sketch, act_of))
        return self._frames[id(sketch)]

    def meetings(self, frames: Sequence[_Frame]) -> _Meetings:
        """Of lanes that run together."""
        key = tuple(map(id, frames))
        if key not in self._meetings:
            touches = [one.touches for one in frames]
            found = exchanges(touches)
            kept = stays(touches, [one.device for one in frames], found)
            self._meetings[key] = _Meetings(found, kept, schedule(touches))
        return self._meetings[key]


def _ordered(sketch: LaneOutline, act_of: ActsOf) -> tuple[LaneOp, ...]:
    """The ops as they will run: a GPU's as they are, one at a time."""
    return sketch.ops if isinstance(sketch.device, Gpu) else in_order(_unprepared(sketch.ops, act_of))


class _Frame:
    """What a lane is beside the sizes of its buffers, which alone depend on the number of rows."""

    def __init__(self, device: Device, ops: tuple[LaneOp, ...]) -> None:
        self.device, self.ops = device, ops
        self.touches = Touches(ops)
        self.on_gpu = isinstance(device, Gpu)
        self.meets, team_meets = ((True,) * len(ops), ()) if self.on_gpu else all_meetings(ops)
        self.team_meets = team_meets if any(team_meets) else ()
        self.turns = tuple(accumulate(self.meets, initial=0))  # ops of one turn run side by side
        self.words = words_of(ops)
        self.first, self.last = dict(self.touches.first), dict(self.touches.last)
        for name, begin, end in joined_lives(ops) if self.on_gpu else ():
            self.first[name], self.last[name] = min(self.first[name], begin), max(self.last[name], end)

        self._layout: Layout | None = None

    def lane(self, stay: Stay, max_rows: int, act_of: ActsOf, logits: Buffer | None) -> Lane:
        """The lane, laid out; of a GPU as for the number of rows that was asked for first, which is the largest."""

        def sizes() -> list[tuple[str, Size, int, int]]:
            return [(one, self._size(at, buffer, max_rows, act_of), *self._life(one, stay)) for one, buffer, at in buffers]

        def slots(layout: Layout, found: Sequence[tuple[str, Size, int, int]] = ()) -> dict[str, Slot]:
            known = found or sizes()
            return {name: size.at(name, layout.offsets[name], first, last) for name, size, first, last in known}

        buffers = [(buffer.name, buffer, at) for buffer, at in self.touches.buffers if buffer != logits]
        turns, layout = self.turns, self._layout
        if layout is None:
            found = sizes()
            lives = [Life(name, size.nbytes, turns[first], turns[last]) for name, size, first, last in found]
            layout = lay_out(lives, GPU_ALIGN if self.on_gpu else ALIGN)
            made = Slots(partial(slots, layout, found))
        else:
            made = Slots(partial(slots, layout))
        if self.on_gpu:
            self._layout = layout
        return Lane(self.device, self.ops, self.meets, made, layout.nbytes, logits, self.team_meets)

    def _size(self, at: int, buffer: Buffer, max_rows: int, act_of: ActsOf) -> Size:
        op = self.ops[at]
        return gpu_size(op, buffer, max_rows, self.words) if self.on_gpu else cpu_size(op, buffer, max_rows, act_of, self.words)

    def _life(self, name: str, stay: Stay) -> tuple[int, int]:
        return stay.arrives.get(name, self.first[name]), max(self.last[name], stay.read_until.get(name, 0))


def _unprepared(ops: tuple[LaneOp, ...], act_of: ActsOf) -> list[LaneOp]:
    """Drops input stages that would only copy: f32 rows used as they lie."""
    as_they_lie = {
        op.acts.name: op.source.x
        for op in ops
        if isinstance(op, LanePrepare) and op.source.plain and all(act_of(weight) == 0 for weight in op.weights)
    }
    kept: list[LaneOp] = []
    for op in ops:
        if isinstance(op, LanePrepare) and op.acts.name in as_they_lie:
            continue
        if isinstance(op, LaneLinear | LaneRoute | LaneExpertsUp | LaneExpertsDown):
            private_copy = op.acts is None and op.source.plain and all(act_of(weight) == 0 for weight in matrices(op))
            if private_copy:
                op = replace(op, acts=op.source.x)
            elif op.acts is not None and op.acts.name in as_they_lie:
                op = replace(op, acts=as_they_lie[op.acts.name])
        kept.append(op)
    return kept
