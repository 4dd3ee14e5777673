"""How large each buffer of a lane is, before it has a place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from engine.graph.ops import Buffer
from engine.program.gpu_slots import acts_bytes
from engine.program.lane_latent import LaneLatentAttend
from engine.program.lane_ops import LaneAttend, LaneExpertsDown, LaneExpertsUp, LaneOp, LanePrepare, LaneRoute
from engine.program.lane_transfer import LaneChosen, LaneTell
from engine.program.plan import Slot, SlotKind
from kernels_pyx.executor import act_row_bytes, partial_floats, routes_bytes

ActsOf = Callable[[str], int]
"""The layout of activations that a tensor is multiplied with."""
_CHOOSING = (LaneRoute, LaneExpertsUp, LaneExpertsDown, LaneChosen, LaneTell)


class Size(NamedTuple):
    """What is known of a `Slot` before its place is; act_offsets: from its beginning."""

    kind: SlotKind
    nbytes: int
    stride: int
    rows: int = 0
    width: int = 0
    act_offsets: tuple[int, int, int] = (-1, -1, -1)
    act_strides: tuple[int, int, int] = (0, 0, 0)

    def at(self, name: str, offset: int, first: int, last: int) -> Slot:
        """The slot at a place, alive from op `first` to op `last`."""
        a, b, c = self.act_offsets
        if self.kind == "acts":
            a, b, c = (one if one < 0 else one + offset for one in (a, b, c))
        kind, nbytes, stride, rows, width, _, strides = self
        return Slot(name, kind, offset, nbytes, stride, first, last, (a, b, c), strides, rows, width)


def words_of(ops: Sequence[LaneOp]) -> frozenset[str]:
    """Names of the buffers that hold ids of experts."""
    found: set[str] = set()
    for op in ops:
        if isinstance(op, _CHOOSING):
            found.add(op.choice.chosen.name)
            if isinstance(op, LaneRoute) and op.pool is not None:
                found |= {op.pool.here.name, op.pool.there.name}
    return frozenset(found)


def gpu_size(op: LaneOp, buffer: Buffer, max_rows: int, words: frozenset[str]) -> Size:
    """Of the buffer that `op` is the first to touch, on a GPU. words: the names of buffers of int32."""
    width = buffer.width
    if type(op) is LanePrepare and buffer == op.acts:
        rows = max_rows * op.slots
        return Size("acts", _acts_bytes(rows, width), 0, rows, width)
    rows = max_rows * (op.choice.n_used if type(op) is LaneExpertsUp and buffer == op.out else 1)
    stride = 4 * width
    return Size("i32" if buffer.name in words else "f32", rows * stride, stride, rows, width)


@lru_cache(1 << 12)
def _acts_bytes(rows: int, width: int) -> int:
    return acts_bytes(rows, width)


def cpu_size(op: LaneOp, buffer: Buffer, max_rows: int, act_of: ActsOf, words: frozenset[str]) -> Size:
    """Of the buffer that `op` is the first to touch, on the CPU."""
    if type(op) is LanePrepare and buffer == op.acts:
        offsets, strides, at = [-1, -1, -1], [0, 0, 0], 0
        rows = max_rows * op.slots
        for act in sorted({act_of(weight) for weight in op.weights}):
            offsets[act], strides[act] = at, act_row_bytes(act, buffer.width)
            at += rows * strides[act]
        places, steps = (offsets[0], offsets[1], offsets[2]), (strides[0], strides[1], strides[2])
        return Size("acts", at, 0, rows, buffer.width, places, steps)
    if type(op) is LaneAttend and op.position is not None and buffer == op.out:
        return _partials(max_rows, partial_floats(op.heads.n_heads, op.heads.v_dim))
    if type(op) is LaneLatentAttend and op.rows and buffer == op.out:
        return _partials(max_rows, partial_floats(op.mla.n_heads, op.mla.rank))
    if (type(op) is LaneRoute or type(op) is LaneChosen) and buffer == op.choice.table:
        return Size("routes", routes_bytes(op.choice.n_experts, max_rows * op.choice.n_used), 0)
    rows = max_rows * (op.choice.n_used if type(op) is LaneExpertsUp and buffer == op.out else 1)
    stride = act_row_bytes(0, buffer.width)
    return Size("i32" if buffer.name in words else "f32", rows * stride, stride, rows, buffer.width)


def _partials(rows: int, floats: int) -> Size:
    return Size("partials", rows * 4 * floats, 4 * floats, rows, floats)
