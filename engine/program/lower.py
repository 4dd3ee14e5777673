"""Outlines and memory to a Plan, for one phase and bucket."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from engine.graph.ops import Buffer, Graph
from engine.placement.placement import Gpu, Placement
from engine.program.exchanges import Stay, exchanges, schedule, stays, touched
from engine.program.fuse import Phase
from engine.program.gpu_slots import GPU_ALIGN, gpu_slot
from engine.program.joins import lives as joined_lives
from engine.program.lane_latent import LaneLatentAttend
from engine.program.lane_ops import (
    LaneAttend,
    LaneExpertsDown,
    LaneExpertsUp,
    LaneLinear,
    LaneOp,
    LanePrepare,
    LaneRoute,
    matrices,
    reads,
    writes,
)
from engine.program.lane_transfer import LaneChosen, LaneTell
from engine.program.meetings import all_meetings, in_order
from engine.program.memory import ALIGN, Life, lay_out
from engine.program.outline import LaneOutline, outline, outline_buckets
from engine.program.plan import Lane, Plan, Slot, SlotKind
from engine.quants.formats import BY_ID
from kernels_pyx.executor import act_row_bytes, partial_floats, routes_bytes
from kernels_pyx.formats import ACTS

DECODE_BUCKETS = (1, 2, 4, 8)
"""Rows of the decode plans; a larger batch runs the prefill plan."""

ActsOf = Callable[[str], int]


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
    return tuple(lower_lanes(one, phase, rows, types, f32=f32) for one, rows in zip(sketches, buckets, strict=True))


def lower_lanes(
    sketches: Sequence[LaneOutline], phase: Phase, max_rows: int, types: Mapping[str, int], *, f32: bool = False
) -> Plan:
    """The plan of outlined lanes."""

    def act_of(weight: str) -> int:
        return 0 if f32 else ACTS.index(BY_ID[types[weight]].act)

    devices = [sketch.device for sketch in sketches]
    ops = [_ordered(sketch, act_of) for sketch in sketches]
    kept = stays(ops, devices)
    lanes = tuple(_lane(one, *run, max_rows, act_of) for one, run in zip(sketches, zip(ops, kept, strict=True), strict=True))
    return Plan(phase, max_rows, f32, lanes, exchanges(ops), schedule(ops))


def _ordered(sketch: LaneOutline, act_of: ActsOf) -> tuple[LaneOp, ...]:
    """The ops as they will run: a GPU's as they are, one at a time."""
    return sketch.ops if isinstance(sketch.device, Gpu) else in_order(_unprepared(sketch.ops, act_of))


def _lane(sketch: LaneOutline, ops: tuple[LaneOp, ...], stay: Stay, max_rows: int, act_of: ActsOf) -> Lane:
    on_gpu = isinstance(sketch.device, Gpu)
    meets, team_meets = ((True,) * len(ops), ()) if on_gpu else all_meetings(ops)
    turns = tuple(accumulate(meets, initial=0))  # ops of one turn run side by side
    first, last = touched(ops)
    for name, begin, end in joined_lives(ops) if on_gpu else ():
        first[name], last[name] = min(first[name], begin), max(last[name], end)
    words = _words(ops)
    slots: dict[str, Slot] = {}
    for op in ops:
        for buffer in (*reads(op), *writes(op)):
            if buffer != sketch.logits and buffer.name not in slots:
                slots[buffer.name] = (
                    gpu_slot(op, buffer, max_rows, words) if on_gpu else _slot(op, buffer, max_rows, act_of, words)
                )
    for name in slots:
        first[name], last[name] = stay.arrives.get(name, first[name]), max(last[name], stay.read_until.get(name, 0))
    lives = [Life(name, slot.nbytes, turns[first[name]], turns[last[name]]) for name, slot in slots.items()]
    layout = lay_out(lives, GPU_ALIGN if on_gpu else ALIGN)
    placed = {name: _placed(slot, layout.offsets[name], first[name], last[name]) for name, slot in slots.items()}
    return Lane(sketch.device, ops, meets, placed, layout.nbytes, sketch.logits, team_meets if any(team_meets) else ())


def _words(ops: Sequence[LaneOp]) -> frozenset[str]:
    """Names of the buffers that hold ids of experts."""
    choosing = (LaneRoute, LaneExpertsUp, LaneExpertsDown, LaneChosen, LaneTell)
    pools = (op.pool for op in ops if isinstance(op, LaneRoute) and op.pool is not None)
    names = {op.choice.chosen.name for op in ops if isinstance(op, choosing)}
    return frozenset(names | {buffer.name for pool in pools for buffer in (pool.here, pool.there)})


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


def _slot(op: LaneOp, buffer: Buffer, max_rows: int, act_of: ActsOf, words: frozenset[str]) -> Slot:
    """The size of the buffer that `op` is the first to touch, on the CPU."""
    if isinstance(op, LanePrepare) and buffer == op.acts:
        offsets, strides, at = [-1, -1, -1], [0, 0, 0], 0
        rows = max_rows * op.slots
        for act in sorted({act_of(weight) for weight in op.weights}):
            offsets[act], strides[act] = at, act_row_bytes(act, buffer.width)
            at += rows * strides[act]
        places, steps = (offsets[0], offsets[1], offsets[2]), (strides[0], strides[1], strides[2])
        return Slot(buffer.name, "acts", 0, at, 0, 0, 0, places, steps, rows, buffer.width)
    if isinstance(op, LaneAttend) and op.position is not None and buffer == op.out:
        return _partials(buffer, max_rows, partial_floats(op.heads.n_heads, op.heads.v_dim))
    if isinstance(op, LaneLatentAttend) and op.rows and buffer == op.out:
        return _partials(buffer, max_rows, partial_floats(op.mla.n_heads, op.mla.rank))
    if isinstance(op, LaneRoute | LaneChosen) and buffer == op.choice.table:
        nbytes = routes_bytes(op.choice.n_experts, max_rows * op.choice.n_used)
        return Slot(buffer.name, "routes", 0, nbytes, 0, 0, 0)
    rows = max_rows * (op.choice.n_used if isinstance(op, LaneExpertsUp) and buffer == op.out else 1)
    stride = act_row_bytes(0, buffer.width)
    kind: SlotKind = "i32" if buffer.name in words else "f32"
    return Slot(buffer.name, kind, 0, rows * stride, stride, 0, 0, rows=rows, width=buffer.width)


def _partials(buffer: Buffer, rows: int, floats: int) -> Slot:
    return Slot(buffer.name, "partials", 0, rows * 4 * floats, 4 * floats, 0, 0, rows=rows, width=floats)


def _placed(slot: Slot, offset: int, first: int, last: int) -> Slot:
    moved = tuple(at if at < 0 else at + offset for at in slot.act_offsets)
    return replace(slot, offset=offset, first=first, last=last, act_offsets=(moved[0], moved[1], moved[2]))
