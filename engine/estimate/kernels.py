"""What the Triton kernels of a GPU keep for themselves between launches: about, for prompts, which need most.

They take it when a chunk of that size first comes (`engine.triton_kernels`: gemm, grouped, latent_heads, delta_chunks), at most
PIECE_BYTES for each purpose. The torch forms of emulated GPUs keep nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.gguf.info import TensorInfo
from engine.program.lane_latent import LaneLatentHeads
from engine.program.lane_ops import LaneDelta, LaneExpertsDown, LaneLinear
from engine.program.plan import Lane

PIECE_BYTES = 64 << 20
DELTA_CHUNK = 64
"""Rows that gated DeltaNet solves at a time."""


def kernel_bytes(lane: Lane, max_rows: int, tensors: Mapping[str, TensorInfo], *, f32: bool) -> int:
    """Bytes that the kernels of a lane with up to max_rows rows keep."""
    return sum(kept_by_kernels(lane, max_rows, tensors, f32=f32).values())


def kept_by_kernels(lane: Lane, max_rows: int, tensors: Mapping[str, TensorInfo], *, f32: bool) -> dict[str, int]:
    """The same by purpose: the largest piece of all ops."""
    found: dict[str, int] = {}
    for name, nbytes in _pieces(lane, max_rows, tensors, 4 if f32 else 2):
        found[name] = max(found.get(name, 0), min(nbytes, PIECE_BYTES))
    return found


def _pieces(lane: Lane, max_rows: int, tensors: Mapping[str, TensorInfo], size: int) -> Iterator[tuple[str, int]]:
    """(what for, bytes if there were no limit) of every op that keeps something; size: bytes of a value that is multiplied."""
    for op in lane.ops:
        if isinstance(op, LaneLinear):
            yield from (("weights", size * tensors[one.weight].n_elements) for one in op.weights)
            if op.epilogue not in ("store", "add"):
                yield from ((name, 4 * max_rows * op.weights[0].out.width) for name in ("gate", "up"))
        elif isinstance(op, LaneExpertsDown):
            yield "products", 4 * max_rows * op.choice.n_used * op.out.width
        elif isinstance(op, LaneDelta):
            yield "channels", 4 * max_rows * op.shape.n_channels
            yield from ((name, 4 * max_rows * op.shape.n_inner) for name in ("values", "keys"))
            yield "triangles", 4 * max_rows * op.shape.n_v_heads * DELTA_CHUNK
        elif isinstance(op, LaneLatentHeads):
            yield "rows", PIECE_BYTES
            yield from (
                (f"heads {i}", size * part.n_heads * part.n_out * part.n_in) for i, part in enumerate((op.mla.k, op.mla.v))
            )
