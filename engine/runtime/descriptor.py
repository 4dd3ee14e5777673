"""One op descriptor being filled: names become addresses. See kernels_pyx/c/op.h for the fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.arch.spec import Act, ClampedSwiglu, HeadMatrices, Mla, Norm
from engine.graph.ops import Buffer
from engine.program.lane_ops import Heads, LaneOp, Source
from engine.program.lane_transfer import Choice
from engine.program.plan import Lane
from engine.runtime.choices import StepChoices
from engine.runtime.derived import DerivedWeights
from engine.runtime.kv_cache import LayerCache
from engine.runtime.node_weights import Slice
from engine.runtime.rope_table import RopeTables
from engine.runtime.spreading import Spreading
from engine.runtime.states import StatePool
from engine.runtime.weights import Weights
from kernels_pyx.executor import LOGITS


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
    RECV = 22
    SEND = 23
    CHOSEN = 24
    TELL = 25


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
    TEAM_SYNC = 1 << 28


@dataclass(slots=True)
class Descriptors:
    """The array, and what it points to, which must live as long: vectors, memory of a node."""

    ops: npt.NDArray[np.void]
    keep: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Memory:
    """Where the things lie that a lane's ops name. spreading: on a machine with several nodes of memory."""

    weights: Weights
    derived: DerivedWeights
    ropes: RopeTables
    layers: Mapping[int, LayerCache]
    k_type: int  # ld_kv_type
    v_type: int
    states: StatePool
    choices: StepChoices | None = None
    spreading: Spreading | None = None


@dataclass(slots=True)
class Row:
    """One descriptor being filled, of an op of a lane."""

    row: Any
    op: LaneOp
    lane: Lane
    memory: Memory
    f32: bool
    keep: list[Any]

    def place(self, buffer: Buffer) -> tuple[int, int]:
        """Offset and stride in floats."""
        if buffer == self.lane.logits:
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

    def matrix(
        self,
        i: int,
        name: str,
        n_in: int,
        n_matrices: int = 1,
        *,
        rows: tuple[int, int] | None = None,
        columns: tuple[int, int] | None = None,
    ) -> None:
        """One matrix with rows of n_in values, or n_matrices of one size that lie in a row; of each only rows and columns
        [first, end) if they are given."""
        tensor = self.memory.weights.matrix(name, n_in)
        n_rows = tensor.n_elements // n_in
        period, row_bytes = n_rows // n_matrices, tensor.nbytes // n_rows
        (first, end), (column, last) = rows or (0, period), columns or (0, n_in)
        part = Slice(name, n_in, n_matrices, period, first, end - first, column, last - column)
        stored = None if self.memory.spreading is None else self.memory.spreading.stored(self.op, part)
        if stored is None:
            address = self.memory.weights.address(tensor) + first * row_bytes + row_bytes * column // n_in
            stride, step = row_bytes, period * row_bytes
        else:
            address, stride, step = stored.address, stored.stride, stored.stride * part.rows
            self.keep.append(stored.arena)
        self.row["w_data"][i], self.row["w_step"][i] = address, step
        self.row["w_format"][i], self.row["w_rows"][i], self.row["w_stride"][i] = tensor.type_id, part.rows, stride

    def bias(self, i: int, name: str | None, first: int = 0) -> None:
        """The bias of matrix i, from value `first` on."""
        if name is not None:
            self.row["w_bias"][i] = self.vector(name) + 4 * first

    def biases(self, i: int, name: str | None, n_matrices: int, rows: tuple[int, int] | None) -> None:
        """The biases of n_matrices matrices, those of rows [first, end) of each."""
        if name is None or rows is None:
            self.bias(i, name)
            return
        values = np.ascontiguousarray(self.memory.weights.vector(name).reshape(n_matrices, -1)[:, rows[0] : rows[1]])
        self.keep.append(values)
        self.row["w_bias"][i] = values.ctypes.data

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
            self.matrix(i, part.weight, part.n_in)
            address, type_id = int(self.row["w_data"][i]), tensor.type_id
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
        assert choice.table is not None, "a choice of a lane of a GPU"
        self.row["routes_offset"] = self.lane.slots[choice.table.name].offset

    def tally(self, layer: int) -> None:
        """Where a router leaves what it chose."""
        choices = self.memory.choices
        if choices is not None:
            self.row["tally_ids"], self.row["tally_counts"] = choices.ids_address(layer), choices.counts_address(layer)

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
