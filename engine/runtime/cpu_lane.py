"""A lane of a plan to an array of C op descriptors: names become addresses. See kernels_pyx/c/op.h for the fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.arch.spec import Act, ClampedSwiglu, HeadMatrices, Mla, Norm
from engine.graph.ops import Buffer
from engine.program.lane_latent import LaneHeads, LaneLatentAttend, LaneLatentHeads, LaneLatentPosition
from engine.program.lane_ops import (
    Choice,
    Heads,
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
    Source,
    Turn,
)
from engine.program.plan import Lane
from engine.runtime.derived import DerivedWeights
from engine.runtime.kv_cache import LayerCache
from engine.runtime.rope_table import RopeTables
from engine.runtime.states import StatePool
from engine.runtime.weights import Weights
from kernels_pyx.executor import LOGITS, OP_DTYPE


class Kind(IntEnum):
    """ld_op_kind."""

    EMBED = 0
    NORM = 1
    PREPARE = 2
    LINEAR = 3
    POSITION = 4
    ATTEND_ROWS = 5
    ATTEND_TILES = 6
    ADD = 7
    GATED_ACT = 8
    ROWS = 9
    ROUTE = 10
    EXPERTS_UP = 11
    EXPERTS_DOWN = 12
    HEADS = 13
    LATENT_POSITION = 14
    LATENT_ROWS = 15
    LATENT_TILES = 16
    LATENT_HEADS = 17
    DELTA_ROWS = 20
    DELTA_CHUNKS = 21


class Flag(IntFlag):
    """LD_F_*."""

    SYNC = 1
    OUT_ROWS = 2
    GATHER = 4
    NORM = 8
    MERGE = 16
    PREPARED = 32
    ADD = 64
    GATED = 128
    F32 = 256
    ROPE_Q = 512
    ROPE_K = 1024
    STORE = 2048
    NEOX = 4096
    GELU = 8192
    SLOTS = 16384
    SHARE = 32768
    SIGMOID = 1 << 16
    CHOSEN = 1 << 17
    CLAMPED = 1 << 18
    BESIDE = 1 << 19
    ROW_GATE = 1 << 20
    WHOLE_NORM = 1 << 21
    NORM_LAST = 1 << 22
    GATE = 1 << 24
    TILED = 1 << 25
    JOINED = 1 << 26
    PAIRED = 1 << 27


@dataclass(slots=True)
class Descriptors:
    """The array, and the vectors it points to, which must live as long."""

    ops: npt.NDArray[np.void]
    keep: list[npt.NDArray[Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Memory:
    """Where the things lie that a lane's ops name."""

    weights: Weights
    derived: DerivedWeights
    ropes: RopeTables
    layers: Mapping[int, LayerCache]
    k_type: int  # ld_kv_type
    v_type: int
    states: StatePool


def describe(lane: Lane, memory: Memory, *, f32: bool) -> Descriptors:
    """The descriptors of a lane. f32: linears take f32 activations.

    Raises:
        UnsupportedModel, GgufError: a tensor that no kernel takes, see `Weights`.
    """
    made = Descriptors(np.zeros(len(lane.ops), OP_DTYPE))
    for i, op in enumerate(lane.ops):
        row = made.ops[i]
        row["act_offset"] = -1
        flags = _DESCRIBE[type(op)](_Row(row, lane, memory, f32, made.keep), op)
        row["flags"] = flags | (Flag.SYNC if lane.meets[i] else 0)
    return made


@dataclass(slots=True)
class _Row:
    """One descriptor being filled."""

    row: Any
    lane: Lane
    memory: Memory
    f32: bool
    keep: list[npt.NDArray[Any]]

    def place(self, buffer: Buffer) -> tuple[int, int]:
        """Offset and stride in floats."""
        if buffer.name == self.lane.logits.name:
            return LOGITS, 0
        slot = self.lane.slots[buffer.name]
        return slot.offset, slot.stride // 4

    def put(self, name: str, buffer: Buffer) -> None:
        """Fills <name>_offset and <name>_stride."""
        self.row[f"{name}_offset"], self.row[f"{name}_stride"] = self.place(buffer)

    def output(self, i: int, buffer: Buffer) -> None:
        self.row["y_offset"][i], self.row["y_stride"][i] = self.place(buffer)

    def vector(self, name: str) -> int:
        """Address of a small f32 tensor."""
        values = self.memory.weights.vector(name)
        self.keep.append(values)
        return values.ctypes.data

    def norm(self, prefix: str, norm: Norm) -> None:
        self.row[f"{prefix}norm_w"], self.row[f"{prefix}norm_eps"] = self.vector(norm.weight), norm.eps

    def matrix(self, i: int, name: str, n_in: int, n_matrices: int = 1, part: int = 0, n_parts: int = 1) -> None:
        """One matrix, or n_matrices of one size that lie in a row; of each only one of n_parts equal parts of its rows."""
        tensor = self.memory.weights.matrix(name, n_in)
        n_rows = tensor.n_elements // n_in
        rows, stride = n_rows // n_matrices // n_parts, tensor.nbytes // n_rows
        self.row["w_data"][i] = self.memory.weights.address(tensor) + part * rows * stride
        self.row["w_format"][i], self.row["w_rows"][i], self.row["w_stride"][i] = tensor.type_id, rows, stride
        self.row["w_step"][i] = n_parts * rows * stride

    def bias(self, i: int, name: str | None) -> None:
        if name is not None:
            self.row["w_bias"][i] = self.vector(name)

    def act(self, act: Act) -> Flag:
        if isinstance(act, ClampedSwiglu):
            self.row["act_alpha"], self.row["act_limit"] = act.alpha, act.limit
            return Flag.CLAMPED
        return Flag.GELU if act == "gelu_tanh" else Flag(0)

    def share(self, share: Buffer | None) -> Flag:
        """The gate of a row, if there is one."""
        if share is None:
            return Flag(0)
        self.put("share", share)
        return Flag.ROW_GATE

    def heads(self, i: int, part: HeadMatrices) -> None:
        """The matrices of all heads as weight i."""
        if part.transposed:
            made = self.memory.derived.of(part)
            address, type_id, row_bytes, step, first = made.address, made.type_id, made.row_bytes, part.n_out, 0
        else:
            tensor = self.memory.weights.matrix(part.weight, part.n_in)
            address, type_id = self.memory.weights.address(tensor), tensor.type_id
            row_bytes, step, first = tensor.nbytes * part.n_in // tensor.n_elements, part.step, part.first
        self.row["w_data"][i], self.row["w_format"][i] = address + first * row_bytes, type_id
        self.row["w_rows"][i], self.row["w_stride"][i], self.row["w_step"][i] = part.n_out, row_bytes, step * row_bytes

    def latent(self, layer: int, mla: Mla, q: Buffer) -> None:
        """What all ops of latent attention have in common."""
        self.row["width"], self.row["head_dim"], self.row["n_rot"] = mla.rank, mla.head_dim, mla.rope.n_rot
        self.row["n_heads"], self.row["scale"] = mla.n_heads, mla.scale
        cache = self.memory.layers[layer]
        self.row["k_cache"], self.row["block_bytes"], self.row["cache_group"] = cache.keys, cache.block_bytes, cache.group
        self.row["k_type"] = self.memory.k_type
        self.put("q", q)

    def choice(self, choice: Choice) -> None:
        self.row["n_experts"], self.row["n_used"] = choice.n_experts, choice.n_used
        self.row["routes_offset"] = self.lane.slots[choice.table.name].offset

    def input(self, source: Source, acts: Buffer | None) -> Flag:
        """The input of linears: prepared for all, or each worker's own stage."""
        if acts is None:
            return self.source(source)
        self.row["width"] = source.width
        slot = self.lane.slots[acts.name]
        if slot.kind == "acts":
            self.row["act_offset"], self.row["act_stride"] = slot.act_offsets, slot.act_strides
        else:  # f32 rows as they lie
            self.row["act_offset"][0], self.row["act_stride"][0] = slot.offset, slot.stride
        return Flag.PREPARED

    def seen(self, heads: Heads) -> None:
        """Which keys the rows of an attention see, and what its softmax adds to them."""
        self.row["window"] = heads.window or 0
        if heads.sinks is not None:
            self.row["sinks"] = self.vector(heads.sinks)

    def source(self, source: Source) -> Flag:
        self.put("x", source.x)
        self.row["width"] = source.width
        flags = Flag(0)
        if source.gather:
            flags |= Flag.GATHER
        if source.norm is not None:
            self.norm("", source.norm)
            flags |= Flag.NORM
        if source.merge is not None:
            self.row["n_heads"], self.row["v_dim"] = source.merge.n_heads, source.merge.v_dim
            self.seen(source.merge)
            flags |= Flag.MERGE | self.gate(source.gate, source.merge)
        return flags

    def gate(self, gate: Buffer | None, heads: Heads) -> Flag:
        """The gates of attention heads, in the buffer of their queries."""
        if gate is None:
            return Flag(0)
        self.put("x2", gate)
        self.row["q_step"], self.row["head_dim"] = heads.q_step, heads.head_dim
        return Flag.GATE


def _embed(to: _Row, op: LaneEmbed) -> Flag:
    to.row["kind"], to.row["n_weights"], to.row["width"] = Kind.EMBED, 1, op.out.width
    to.matrix(0, op.weight, op.out.width)
    to.output(0, op.out)
    to.row["scale"] = op.scale
    return Flag(0)


def _norm(to: _Row, op: LaneNorm) -> Flag:
    to.row["kind"], to.row["width"], to.row["parts"] = Kind.NORM, op.x.width, op.n_heads
    to.put("x", op.x)
    to.output(0, op.out)
    to.norm("", op.norm)
    return _late(op.out_rows) | (Flag.ADD if op.add else Flag(0))


def _prepare(to: _Row, op: LanePrepare) -> Flag:
    to.row["kind"] = Kind.PREPARE
    slot = to.lane.slots[op.acts.name]
    to.row["act_offset"], to.row["act_stride"] = slot.act_offsets, slot.act_strides
    flags = to.source(op.source) | _late(op.out_rows)
    if op.slots > 1:
        to.row["n_used"] = op.slots
        flags |= Flag.SLOTS
    return flags


def _linear(to: _Row, op: LaneLinear) -> Flag:
    to.row["kind"], to.row["n_weights"] = Kind.LINEAR, len(op.weights)
    flags = to.input(op.source, op.acts) | _late(op.out_rows) | _exact(to.f32)
    to.row["softcap"] = op.softcap
    for i, weight in enumerate(op.weights):
        to.matrix(i, weight.weight, op.source.width)
        to.output(i, weight.out)
        to.bias(i, weight.bias)
    if op.epilogue == "store":
        return flags
    return flags | (Flag.ADD if op.epilogue == "add" else Flag.GATED | to.act(op.epilogue))


def _route(to: _Row, op: LaneRoute) -> Flag:
    to.row["kind"], to.row["n_weights"] = Kind.ROUTE, 1
    to.matrix(0, op.router.weight, op.source.width)
    to.output(0, op.router.out)
    to.bias(0, op.router.bias)
    to.choice(op.choice)
    routing = op.routing
    to.row["n_groups"], to.row["n_groups_used"], to.row["weight_scale"] = routing.n_groups, routing.n_groups_used, routing.scale
    if routing.bias is not None:
        to.row["pick_bias"] = to.vector(routing.bias)
    flags = to.input(op.source, op.acts) | _late(op.out_rows) | _exact(to.f32) | _GATINGS[routing.gating]
    return flags | (Flag.SHARE if routing.norm_weights else Flag(0))


def _experts_up(to: _Row, op: LaneExpertsUp) -> Flag:
    to.row["kind"], to.row["n_weights"] = Kind.EXPERTS_UP, 2
    fused = op.gate == op.up
    for i, (name, bias) in enumerate(((op.gate, op.gate_bias), (op.up, op.up_bias))):
        to.matrix(i, name, op.source.width, op.choice.n_experts, i if fused else 0, 2 if fused else 1)
        to.bias(i, bias)
    to.output(0, op.out)
    to.choice(op.choice)
    return to.input(op.source, op.acts) | _late(op.out_rows) | _exact(to.f32) | to.act(op.act)


def _experts_down(to: _Row, op: LaneExpertsDown) -> Flag:
    to.row["kind"], to.row["n_weights"] = Kind.EXPERTS_DOWN, 1
    to.matrix(0, op.down, op.source.width, op.choice.n_experts)
    to.bias(0, op.bias)
    to.output(0, op.out)
    to.choice(op.choice)
    flags = to.input(op.source, op.acts) | _late(op.out_rows) | _exact(to.f32) | to.share(op.share)
    if op.beside is not None:
        to.put("x2", op.beside)
        flags |= Flag.BESIDE
    return flags | (Flag.ADD if op.add else Flag(0))


def _position(to: _Row, op: LanePosition) -> Flag:
    to.row["kind"] = Kind.POSITION
    return _turns(to, op)


def _turns(to: _Row, op: LanePosition) -> Flag:
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


def _attend(to: _Row, op: LaneAttend) -> Flag:
    bare = LanePosition(op.unit, op.layer, op.q, None, None, op.heads, _NO_TURN, _NO_TURN, False)
    flags = _turns(to, op.position or bare)
    to.row["kind"] = Kind.ATTEND_ROWS if op.rows else Kind.ATTEND_TILES
    to.seen(op.heads)
    to.row["softcap"] = op.heads.softcap
    to.output(0, op.out)
    return flags | to.gate(op.gate, op.heads)


def _delta(to: _Row, op: LaneDelta) -> Flag:
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
    row["state"], row["state_stride"] = to.memory.states.layers[op.layer], to.memory.states.slot_bytes
    flags = Flag.TILED if shape.tiled else Flag(0)
    flags |= Flag.JOINED if shape.joined else Flag(0)
    return flags | (Flag.PAIRED if shape.paired else Flag(0))


def _heads(to: _Row, op: LaneHeads) -> Flag:
    to.row["kind"], to.row["n_weights"], to.row["width"] = Kind.HEADS, 1, op.matrices.n_in
    to.row["n_heads"], to.row["v_dim"] = op.matrices.n_heads, op.matrices.n_in
    to.row["x_head"], to.row["y_head"] = op.x_head, op.out_head
    to.heads(0, op.matrices)
    to.put("x", op.x)
    to.output(0, op.out)
    return _exact(to.f32) | (Flag.MERGE if op.merge else Flag(0))


def _latent_position(to: _Row, op: LaneLatentPosition) -> Flag:
    to.row["kind"] = Kind.LATENT_POSITION
    to.latent(op.layer, op.mla, op.q)
    to.put("k", op.row)
    to.norm("k_", op.norm)
    table = to.memory.ropes.of(op.mla.rope)
    to.keep.append(table)
    to.row["rope_table"] = table.ctypes.data
    return Flag.NEOX if op.mla.rope.kind == "neox" else Flag(0)


def _latent_attend(to: _Row, op: LaneLatentAttend) -> Flag:
    to.row["kind"] = Kind.LATENT_ROWS if op.rows else Kind.LATENT_TILES
    to.latent(op.layer, op.mla, op.q)
    to.row["v_dim"] = op.mla.rank
    to.put("x", op.absorbed)
    to.output(0, op.out)
    return _exact(to.f32)


def _latent_heads(to: _Row, op: LaneLatentHeads) -> Flag:
    to.row["kind"], to.row["n_weights"] = Kind.LATENT_HEADS, 2
    to.latent(op.layer, op.mla, op.q)
    to.row["v_dim"] = op.mla.v.n_out
    to.heads(0, op.mla.k)
    to.heads(1, op.mla.v)
    to.output(0, op.out)
    return _exact(to.f32)


def _add(to: _Row, op: LaneAdd) -> Flag:
    to.row["kind"], to.row["width"] = Kind.ADD, op.x.width
    to.put("x", op.y)
    to.output(0, op.x)
    return _late(op.out_rows) | to.share(op.share)


def _gated_act(to: _Row, op: LaneGatedAct) -> Flag:
    to.row["kind"], to.row["width"] = Kind.GATED_ACT, op.out.width
    to.put("x", op.gate)
    to.put("x2", op.up)
    to.output(0, op.out)
    return _late(op.out_rows) | to.act(op.act)


def _rows(to: _Row, op: LaneRows) -> Flag:
    to.row["kind"], to.row["width"] = Kind.ROWS, op.x.width
    to.put("x", op.x)
    to.output(0, op.out)
    return Flag.OUT_ROWS


def _exact(f32: bool) -> Flag:
    return Flag.F32 if f32 else Flag(0)


def _late(out_rows: bool) -> Flag:
    return Flag.OUT_ROWS if out_rows else Flag(0)


_NO_TURN = Turn(None, None)
_GATINGS = {"softmax": Flag(0), "sigmoid": Flag.SIGMOID, "softmax_chosen": Flag.CHOSEN}
_DESCRIBE: dict[type[LaneOp], Callable[[_Row, Any], Flag]] = {
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
}
