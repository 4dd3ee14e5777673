"""A lane of a plan to an array of C op descriptors: names become addresses. See kernels_pyx/c/op.h for the fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.placement.placement import Placement
from engine.program.lane_latent import LaneHeads, LaneLatentAttend, LaneLatentHeads, LaneLatentPosition
from engine.program.lane_ops import (
    LaneAdd,
    LaneAttend,
    LaneDelta,
    LaneEmbed,
    LaneExpertsDown,
    LaneExpertsUp,
    LaneGatedAct,
    LaneLinear,
    LaneNorm,
    LaneOp,
    LanePosition,
    LanePrepare,
    LaneRoute,
    LaneRows,
    Turn,
)
from engine.program.lane_transfer import LaneChosen, LaneRecv, LaneSend, LaneTell
from engine.program.plan import Lane
from engine.runtime.descriptor import Descriptors, Flag, Kind, Memory, Row
from engine.runtime.teams import Teams
from kernels_pyx.executor import OP_DTYPE


def describe(lane: Lane, memory: Memory, *, f32: bool) -> Descriptors:
    """The descriptors of a lane, for one team, see `in_teams`. f32: linears take f32 activations.

    Raises:
        UnsupportedModel, GgufError: a tensor that no kernel takes, see `Weights`.
    """
    made = Descriptors(np.zeros(len(lane.ops), OP_DTYPE))
    for i, op in enumerate(lane.ops):
        row = made.ops[i]
        row["act_offset"] = -1
        flags = _DESCRIBE[type(op)](Row(row, op, lane, memory, f32, made.keep), op)
        row["flags"] = flags | (Flag.SYNC if lane.meets[i] else 0)
    return made


def in_teams(ops: npt.NDArray[np.void], lane: Lane, placement: Placement, teams: Teams) -> npt.NDArray[np.void]:
    """The descriptors of a lane for these teams: which of them does each op, and whom its workers wait for after it."""
    dealt = ops.copy()
    for i, op in enumerate(lane.ops):
        team = dealt[i]["team"] = teams.of_op(op, placement)
        if lane.team_meets and lane.team_meets[i]:  # where nobody works on that node all do its part
            dealt[i]["flags"] |= Flag.TEAM_SYNC if team else Flag.SYNC
    return dealt


def _embed(to: Row, op: LaneEmbed) -> Flag:
    to.row["kind"], to.row["n_weights"], to.row["width"] = Kind.EMBED, 1, op.out.width
    to.matrix(0, op.weight, op.out.width)
    to.output(0, op.out)
    to.row["scale"] = op.scale
    return Flag(0)


def _norm(to: Row, op: LaneNorm) -> Flag:
    to.row["kind"], to.row["width"], to.row["parts"] = Kind.NORM, op.x.width, op.n_heads
    to.put("x", op.x)
    to.output(0, op.out)
    to.norm("", op.norm)
    return _late(op.out_rows) | (Flag.ADD if op.add else Flag(0))


def _prepare(to: Row, op: LanePrepare) -> Flag:
    to.row["kind"] = Kind.PREPARE
    slot = to.lane.slots[op.acts.name]
    to.row["act_offset"], to.row["act_stride"] = slot.act_offsets, slot.act_strides
    flags = to.source(op.source) | _late(op.out_rows)
    if op.slots > 1:
        to.row["n_used"] = op.slots
        flags |= Flag.SLOTS
    return flags


def _linear(to: Row, op: LaneLinear) -> Flag:
    to.row["kind"], to.row["n_weights"] = Kind.LINEAR, len(op.weights)
    flags = to.input(op.source, op.acts) | _late(op.out_rows) | _exact(to.f32)
    to.row["softcap"] = op.softcap
    for i, weight in enumerate(op.weights):
        first, end = (0, weight.out.width) if op.part is None else op.part.ranges[i]
        begins = weight.first or 0
        whole = weight.first is None and op.part is None
        to.matrix(i, weight.weight, op.source.width, rows=None if whole else (begins + first, begins + end))
        to.output(i, weight.out)
        to.row["y_first"][i] = first
        if weight.bias is not None:  # of these rows, or of all rows of the tensor
            of_all = len(to.memory.weights.vector(weight.bias)) > weight.out.width
            to.bias(i, weight.bias, first + (begins if of_all else 0))
    if op.epilogue == "store":
        return flags
    return flags | (Flag.ADD if op.epilogue == "add" else Flag.GATED | to.act(op.epilogue))


def _route(to: Row, op: LaneRoute) -> Flag:
    to.row["kind"], to.row["n_weights"] = Kind.ROUTE, 1
    to.matrix(0, op.router.weight, op.source.width)
    to.output(0, op.router.out)
    to.bias(0, op.router.bias)
    to.choice(op.choice)
    to.tally(op.unit.layer)
    routing = op.routing
    to.row["n_groups"], to.row["n_groups_used"], to.row["weight_scale"] = routing.n_groups, routing.n_groups_used, routing.scale
    if routing.bias is not None:
        to.row["pick_bias"] = to.vector(routing.bias)
    flags = to.input(op.source, op.acts) | _late(op.out_rows) | _exact(to.f32) | _GATINGS[routing.gating]
    return flags | (Flag.SHARE if routing.norm_weights else Flag(0))


def _experts_up(to: Row, op: LaneExpertsUp) -> Flag:
    to.row["kind"], to.row["n_weights"] = Kind.EXPERTS_UP, 2
    fused, width = op.gate == op.up, op.source.width
    for i, (name, bias) in enumerate(((op.gate, op.gate_bias), (op.up, op.up_bias))):
        height = to.memory.weights.matrix(name, width).n_elements // width // op.choice.n_experts
        begins = height // 2 if fused and i else 0
        rows = None if op.part is None else op.part.ranges[i]
        first, end = rows or (0, height // 2 if fused else height)
        to.matrix(i, name, width, op.choice.n_experts, rows=(begins + first, begins + end))
        to.biases(i, bias, op.choice.n_experts, rows)
    to.output(0, op.out)
    to.choice(op.choice)
    return to.input(op.source, op.acts) | _late(op.out_rows) | _exact(to.f32) | to.act(op.act)


def _experts_down(to: Row, op: LaneExpertsDown) -> Flag:
    to.row["kind"], to.row["n_weights"] = Kind.EXPERTS_DOWN, 1
    columns = None if op.part is None else op.part.ranges[0]
    n_in = op.source.width if columns is None else to.memory.weights.tensor(op.down).shape[0]
    to.matrix(0, op.down, n_in, op.choice.n_experts, columns=columns)
    to.bias(0, op.bias)
    to.output(0, op.out)
    to.choice(op.choice)
    flags = to.input(op.source, op.acts) | _late(op.out_rows) | _exact(to.f32) | to.share(op.share)
    if op.beside is not None:
        to.put("x2", op.beside)
        flags |= Flag.BESIDE
    return flags | (Flag.ADD if op.add else Flag(0))


def _position(to: Row, op: LanePosition) -> Flag:
    to.row["kind"] = Kind.POSITION
    return _turns(to, op)


def _turns(to: Row, op: LanePosition) -> Flag:
    heads = op.heads
    to.row["n_heads"], to.row["n_kv_heads"] = heads.n_heads, heads.n_kv_heads
    to.row["head_dim"], to.row["v_dim"], to.row["scale"] = heads.head_dim, heads.v_dim, heads.scale
    to.row["q_step"] = heads.q_step
    cache = to.memory.layers[op.layer]
    to.row["k_cache"], to.row["v_cache"], to.row["block_bytes"] = cache.keys, cache.values, cache.block_bytes
    to.row["cache_group"] = cache.group
    to.row["k_type"], to.row["v_type"] = to.memory.k_type, to.memory.v_type
    for name, buffer in (("q", op.q), ("k", op.k), ("v", op.v)):
        if buffer is not None:
            to.put(name, buffer)
    flags = Flag.STORE if op.store else Flag(0)
    for name, turn, flag in (("q", op.turn_q, Flag.ROPE_Q), ("k", op.turn_k, Flag.ROPE_K)):
        if turn.norm is not None:
            to.norm(f"{name}_", turn.norm)
            flags |= (Flag.WHOLE_NORM if turn.whole else Flag(0)) | (Flag.NORM_LAST if turn.norm_last else Flag(0))
        if turn.temperature is not None:
            factors = to.memory.ropes.factors(turn.temperature)
            to.keep.append(factors)
            to.row["q_scale"] = factors.ctypes.data
        if turn.rope is not None:
            table = to.memory.ropes.of(turn.rope)
            to.keep.append(table)
            to.row["rope_table"], to.row["n_rot"] = table.ctypes.data, turn.rope.n_rot
            flags |= flag | (Flag.NEOX if turn.rope.kind == "neox" else Flag(0))
    return flags


def _attend(to: Row, op: LaneAttend) -> Flag:
    bare = LanePosition(op.unit, op.layer, op.q, None, None, op.heads, _NO_TURN, _NO_TURN, False)
    flags = _turns(to, op.position or bare)
    to.row["kind"] = Kind.ATTEND_ROWS if op.rows else Kind.ATTEND_TILES
    to.seen(op.heads)
    to.row["softcap"] = op.heads.softcap
    to.output(0, op.out)
    return flags | to.gate(op.gate, op.heads)


def _delta(to: Row, op: LaneDelta) -> Flag:
    shape, row = op.shape, to.row
    row["kind"] = Kind.DELTA_ROWS if op.rows else Kind.DELTA_CHUNKS
    row["n_heads"], row["n_kv_heads"], row["head_dim"], row["n_taps"] = shape.n_v_heads, shape.n_k_heads, shape.dim, shape.n_taps
    for name, buffer in (("x", op.x), ("x2", op.z), ("q", op.beta), ("k", op.alpha)):
        to.put(name, buffer)
    to.output(0, op.out)
    to.norm("", op.norm)
    taps = to.memory.weights.transposed(op.conv, shape.n_taps)
    to.keep.append(taps)
    row["conv_w"], row["dt"], row["decay"] = taps.ctypes.data, to.vector(op.dt), to.vector(op.a)
    state = to.memory.states.layers[op.layer]
    row["state"], row["state_stride"] = state.address, state.slot_bytes
    flags = Flag.TILED if shape.tiled else Flag(0)
    flags |= Flag.JOINED if shape.joined else Flag(0)
    return flags | (Flag.PAIRED if shape.paired else Flag(0))


def _heads(to: Row, op: LaneHeads) -> Flag:
    to.row["kind"], to.row["n_weights"], to.row["width"] = Kind.HEADS, 1, op.matrices.n_in
    to.row["n_heads"], to.row["v_dim"] = op.matrices.n_heads, op.matrices.n_in
    to.row["x_head"], to.row["y_head"] = op.x_head, op.out_head
    to.heads(0, op.matrices)
    to.put("x", op.x)
    to.output(0, op.out)
    return _exact(to.f32) | (Flag.MERGE if op.merge else Flag(0))


def _latent_position(to: Row, op: LaneLatentPosition) -> Flag:
    to.row["kind"] = Kind.LATENT_POSITION
    to.latent(op.layer, op.mla, op.q)
    to.put("k", op.row)
    to.norm("k_", op.norm)
    table = to.memory.ropes.of(op.mla.rope)
    to.keep.append(table)
    to.row["rope_table"] = table.ctypes.data
    return Flag.NEOX if op.mla.rope.kind == "neox" else Flag(0)


def _latent_attend(to: Row, op: LaneLatentAttend) -> Flag:
    to.row["kind"] = Kind.LATENT_ROWS if op.rows else Kind.LATENT_TILES
    to.latent(op.layer, op.mla, op.q)
    to.row["v_dim"] = op.mla.rank
    to.put("x", op.absorbed)
    to.output(0, op.out)
    return _exact(to.f32)


def _latent_heads(to: Row, op: LaneLatentHeads) -> Flag:
    to.row["kind"], to.row["n_weights"] = Kind.LATENT_HEADS, 2
    to.latent(op.layer, op.mla, op.q)
    to.row["v_dim"] = op.mla.v.n_out
    to.heads(0, op.mla.k)
    to.heads(1, op.mla.v)
    to.output(0, op.out)
    return _exact(to.f32)


def _add(to: Row, op: LaneAdd) -> Flag:
    to.row["kind"], to.row["width"] = Kind.ADD, op.x.width
    to.put("x", op.y)
    to.output(0, op.x)
    flags = _late(op.out_rows) | to.share(op.share)
    if op.more is not None:
        to.put("x2", op.more)
        flags |= Flag.BESIDE
    return flags


def _gated_act(to: Row, op: LaneGatedAct) -> Flag:
    to.row["kind"], to.row["width"] = Kind.GATED_ACT, op.out.width
    to.put("x", op.gate)
    to.put("x2", op.up)
    to.output(0, op.out)
    return _late(op.out_rows) | to.act(op.act)


def _rows(to: Row, op: LaneRows) -> Flag:
    to.row["kind"], to.row["width"] = Kind.ROWS, op.x.width
    to.put("x", op.x)
    to.output(0, op.out)
    return Flag.OUT_ROWS


def _recv(to: Row, op: LaneRecv) -> Flag:
    to.row["kind"], to.row["flag"] = Kind.RECV, op.flag
    return _late(op.out_rows)


def _send(to: Row, op: LaneSend) -> Flag:
    to.row["kind"], to.row["flag"] = Kind.SEND, op.flag
    return _late(op.out_rows)


def _chosen(to: Row, op: LaneChosen) -> Flag:
    to.row["kind"] = Kind.CHOSEN
    to.put("x", op.choice.chosen)
    to.put("x2", op.choice.weights)
    to.choice(op.choice)
    return _late(op.out_rows)


def _tell(to: Row, op: LaneTell) -> Flag:
    to.row["kind"] = Kind.TELL
    to.output(0, op.choice.chosen)
    to.output(1, op.choice.weights)
    to.choice(op.choice)
    return _late(op.out_rows)


def _exact(f32: bool) -> Flag:
    return Flag.F32 if f32 else Flag(0)


def _late(out_rows: bool) -> Flag:
    return Flag.OUT_ROWS if out_rows else Flag(0)


_NO_TURN = Turn(None, None)
_GATINGS = {"softmax": Flag(0), "sigmoid": Flag.SIGMOID, "softmax_chosen": Flag.CHOSEN}
_DESCRIBE: dict[type[LaneOp], Callable[[Row, Any], Flag]] = {
    LaneEmbed: _embed,
    LaneNorm: _norm,
    LanePrepare: _prepare,
    LaneLinear: _linear,
    LaneRoute: _route,
    LaneExpertsUp: _experts_up,
    LaneExpertsDown: _experts_down,
    LanePosition: _position,
    LaneAttend: _attend,
    LaneHeads: _heads,
    LaneLatentPosition: _latent_position,
    LaneLatentAttend: _latent_attend,
    LaneLatentHeads: _latent_heads,
    LaneDelta: _delta,
    LaneAdd: _add,
    LaneGatedAct: _gated_act,
    LaneRows: _rows,
    LaneRecv: _recv,
    LaneSend: _send,
    LaneChosen: _chosen,
    LaneTell: _tell,
}
