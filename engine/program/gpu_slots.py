"""Where the buffers of a GPU lane lie in one piece of the card's memory, whose size is known before anything is loaded."""

from __future__ import annotations

from engine.graph.ops import Buffer
from engine.program.lane_ops import LaneExpertsUp, LaneOp, LanePrepare
from engine.program.plan import Slot, SlotKind

GPU_ALIGN = 256
"""Bytes: what allocators of cards give, and what kernels may count on."""


def gpu_slot(op: LaneOp, buffer: Buffer, max_rows: int, words: frozenset[str]) -> Slot:
    """The size of the buffer that `op` is the first to touch. words: the names of buffers of int32."""
    if isinstance(op, LanePrepare) and buffer == op.acts:
        rows = max_rows * op.slots
        return Slot(buffer.name, "acts", 0, acts_bytes(rows, buffer.width), 0, 0, 0, rows=rows, width=buffer.width)
    rows = max_rows * (op.choice.n_used if isinstance(op, LaneExpertsUp) and buffer == op.out else 1)
    kind: SlotKind = "i32" if buffer.name in words else "f32"
    stride = 4 * buffer.width
    return Slot(buffer.name, kind, 0, rows * stride, stride, 0, 0, rows=rows, width=buffer.width)


def acts_bytes(rows: int, width: int) -> int:
    """Room for all parts of `Acts`, each from a multiple of GPU_ALIGN on: values, f16, codes, scales of 32, sums of 16."""
    groups = -(-width // 32)
    return sum(-(-rows * nbytes // GPU_ALIGN) * GPU_ALIGN for nbytes in (4 * width, 2 * width, width, 4 * groups, 8 * groups))
