"""Outline and memory to a Plan, for one phase and bucket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import accumulate

from engine.graph.ops import Buffer, Graph
from engine.placement.placement import Placement
from engine.program.fuse import Phase
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
from engine.program.meetings import in_order, meetings
from engine.program.memory import Life, lay_out
from engine.program.outline import LaneOutline, outline
from engine.program.plan import Lane, Plan, Slot
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

    def act_of(weight: str) -> int:
        return 0 if f32 else ACTS.index(BY_ID[types[weight]].act)

    lanes = (_lane(sketch, max_rows, act_of) for sketch in outline(graph, placement, phase, max_rows))
    return Plan(phase, max_rows, f32, tuple(lanes))


def _lane(sketch: LaneOutline, max_rows: int, act_of: ActsOf) -> Lane:
    ops = in_order(_unprepared(sketch.ops, act_of))
    meets = meetings(ops)
    turns = tuple(accumulate(meets, initial=0))  # ops of one turn run side by side
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    slots: dict[str, Slot] = {}
    for i, op in enumerate(ops):
        for buffer in (*reads(op), *writes(op)):
            first.setdefault(buffer.name, i)
            last[buffer.name] = i
            if buffer.name != sketch.logits.name and buffer.name not in slots:
                slots[buffer.name] = _slot(op, buffer, max_rows, act_of)
    lives = [Life(name, slot.nbytes, turns[first[name]], turns[last[name]]) for name, slot in slots.items()]
    layout = lay_out(lives)
    placed = {name: _placed(slot, layout.offsets[name], first[name], last[name]) for name, slot in slots.items()}
    return Lane(sketch.device, ops, meets, placed, layout.nbytes, sketch.logits)


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


def _slot(op: LaneOp, buffer: Buffer, max_rows: int, act_of: ActsOf) -> Slot:
    """The size of the buffer that `op` is the first to touch."""
    if isinstance(op, LanePrepare) and buffer == op.acts:
        offsets, strides, at = [-1, -1, -1], [0, 0, 0], 0
        for act in sorted({act_of(weight) for weight in op.weights}):
            offsets[act], strides[act] = at, act_row_bytes(act, buffer.width)
            at += max_rows * op.slots * strides[act]
        return Slot(
            buffer.name, "acts", 0, at, 0, 0, 0, (offsets[0], offsets[1], offsets[2]), (strides[0], strides[1], strides[2])
        )
    if isinstance(op, LaneAttend) and op.rows and buffer == op.out:
        stride = 4 * partial_floats(op.heads.n_heads, op.heads.v_dim)
        return Slot(buffer.name, "partials", 0, max_rows * stride, stride, 0, 0)
    if isinstance(op, LaneLatentAttend) and op.rows and buffer == op.out:
        stride = 4 * partial_floats(op.mla.n_heads, op.mla.rank)
        return Slot(buffer.name, "partials", 0, max_rows * stride, stride, 0, 0)
    if isinstance(op, LaneRoute) and buffer == op.choice.table:
        nbytes = routes_bytes(op.choice.n_experts, max_rows * op.choice.n_used)
        return Slot(buffer.name, "routes", 0, nbytes, 0, 0, 0)
    stride = act_row_bytes(0, buffer.width)
    if isinstance(op, LaneExpertsUp) and buffer == op.out:
        max_rows *= op.choice.n_used
    return Slot(buffer.name, "f32", 0, max_rows * stride, stride, 0, 0)


def _placed(slot: Slot, offset: int, first: int, last: int) -> Slot:
    moved = tuple(at if at < 0 else at + offset for at in slot.act_offsets)
    return replace(slot, offset=offset, first=first, last=last, act_offsets=(moved[0], moved[1], moved[2]))
