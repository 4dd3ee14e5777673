"""Outlines and memory to a Plan, for one phase and bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from engine.program.memory import ALIGN, Life, lay_out
from engine.program.outline import LaneOutline, outline, outline_buckets
from engine.program.plan import Lane, Plan
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
    frames: _Frames = {}
    return tuple(
        lower_lanes(one, phase, rows, types, f32=f32, frames=frames) for one, rows in zip(sketches, buckets, strict=True)
    )


def lower_lanes(
    sketches: Sequence[LaneOutline],
    phase: Phase,
    max_rows: int,
    types: Mapping[str, int],
    *,
    f32: bool = False,
    frames: _Frames | None = None,
) -> Plan:
    """The plan of outlined lanes. frames: of outlines that were lowered for another number of rows, to be added to."""

    def act_of(weight: str) -> int:
        return 0 if f32 else ACTS.index(BY_ID[types[weight]].act)

    made = {} if frames is None else frames
    found = [_framed(sketch, act_of, made) for sketch in sketches]
    touches = [one.touches for one in found]
    known = exchanges(touches)
    kept = stays(touches, [one.device for one in found], known)
    pairs = zip(sketches, found, kept, strict=True)
    lanes = tuple(one.lane(stay, max_rows, act_of, sketch.logits) for sketch, one, stay in pairs)
    return Plan(phase, max_rows, f32, lanes, known, schedule(touches))


def _framed(sketch: LaneOutline, act_of: ActsOf, frames: _Frames) -> _Frame:
    if id(sketch) not in frames:
        frames[id(sketch)] = _Frame(sketch.device, _ordered(sketch, act_of))
    return frames[id(sketch)]


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

    def lane(self, stay: Stay, max_rows: int, act_of: ActsOf, logits: Buffer | None) -> Lane:
        """The lane, laid out."""
        turns, words, arrives, until = self.turns, self.words, stay.arrives, stay.read_until
        known: list[tuple[str, Size, int, int]] = []
        for buffer, at in self.touches.buffers:
            if buffer == logits:
                continue
            name, op = buffer.name, self.ops[at]
            size = gpu_size(op, buffer, max_rows, words) if self.on_gpu else cpu_size(op, buffer, max_rows, act_of, words)
            known.append((name, size, arrives.get(name, self.first[name]), max(self.last[name], until.get(name, 0))))
        lives = [Life(name, size.nbytes, turns[first], turns[last]) for name, size, first, last in known]
        layout = lay_out(lives, GPU_ALIGN if self.on_gpu else ALIGN)
        placed = {name: size.at(name, layout.offsets[name], first, last) for name, size, first, last in known}
        return Lane(self.device, self.ops, self.meets, placed, layout.nbytes, logits, self.team_meets)


_Frames = dict[int, _Frame]
"""By the identity of the outline that they were made from."""


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
