"""What the Triton kernels of a GPU keep for themselves between launches: about, for the steps that need most.

They take it when a step of that kind first comes (`engine.triton_kernels`: gemm, grouped, attention_decode, latent_attend,
latent_heads, heads, delta_chunks), and keep it: what one kind of step took serves the others. The torch forms of emulated GPUs
keep nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from engine.arch.spec import HeadMatrices, Mla
from engine.estimate.cache import BLOCK
from engine.gguf.info import TensorInfo
from engine.program.fuse import FEW_ROWS
from engine.program.lane_latent import LaneHeads, LaneLatentAttend, LaneLatentHeads
from engine.program.lane_ops import LaneAttend, LaneDelta, LaneExpertsDown, LaneExpertsUp, LaneLinear, LaneOp, LaneRoute
from engine.program.plan import Lane

PIECE_BYTES = 64 << 20
"""Scratch of dequantised weights, and of products: one piece each, however large a step is; the most of keys that are made."""
DELTA_CHUNK = 64
"""Rows that gated DeltaNet solves at a time."""
MULTIPROCESSORS = 132
"""Of a card, about: from a 4090's 128 to a 5090's 170. Attention over a long past is split until all of them have work."""
SPLIT_BLOCKS, MAX_SPLITS = 2, 128
"""Blocks of the cache that a split has at least; splits at most."""
SHORT_ROWS, SHORT_QUERIES = 128, 64
"""Rows of a chunk up to which its past is split, and queries of a tile of it."""
LATENT_QUERIES = 64
_STORED = frozenset({"F32", "F16", "BF16", "Q8_0"})
"""Formats of matrices of heads that are read as they lie."""

Kept = Mapping[str, int]


def kernel_bytes(kept: Iterable[Kept]) -> int:
    """Bytes that the kernels of a device keep. kept: of each of its lanes, by purpose."""
    return sum(joined(kept).values())


def joined(kept: Iterable[Kept]) -> dict[str, int]:
    """By purpose the largest piece."""
    found: dict[str, int] = {}
    for one in kept:
        for name, nbytes in one.items():
            found[name] = max(nbytes, found.get(name, 0))
    return found


def kept_by_kernels(lane: Lane, max_rows: int, tensors: Mapping[str, TensorInfo], n_ctx: int, *, f32: bool) -> dict[str, int]:
    """Bytes by purpose of a lane with up to max_rows rows: the largest piece of all ops."""
    found: dict[str, int] = {}
    for op in lane.ops:
        for name, nbytes in _pieces(op, max_rows, tensors, -(-n_ctx // BLOCK), f32=f32):
            found[name] = max(found.get(name, 0), nbytes)
    return found


def _pieces(op: LaneOp, rows: int, tensors: Mapping[str, TensorInfo], n_blocks: int, *, f32: bool) -> Iterator[tuple[str, int]]:
    """(what for, bytes) of an op. n_blocks: of the cache of a whole context."""
    size = 4 if f32 else 2
    if isinstance(op, LaneAttend):
        each, kv = op.heads.n_heads // op.heads.n_kv_heads, op.heads.n_kv_heads
        few = rows if op.rows else min(rows, SHORT_ROWS)
        tiles = 1 if op.rows else -(-few // max(2, SHORT_QUERIES // _padded(each)))
        reach = n_blocks if op.heads.window is None else min(n_blocks, op.heads.window // BLOCK + 2)
        yield "partials", 4 * few * op.heads.n_heads * _splits(2.0, kv * tiles, reach) * (op.heads.v_dim + 2)
    elif isinstance(op, LaneLatentAttend):
        yield "partials", _latent_partials(op, rows, n_blocks)
    elif isinstance(op, LaneHeads):
        if tensors[op.matrices.weight].type_name not in _STORED and not op.matrices.transposed:
            yield "heads", 2 * _rows_read(op.matrices) * op.matrices.n_in
    elif rows > FEW_ROWS and op.unit.kind != "head":  # of which few rows are wanted
        yield from _of_many(op, rows, tensors, n_blocks, size)


def _of_many(op: LaneOp, rows: int, tensors: Mapping[str, TensorInfo], n_blocks: int, size: int) -> Iterator[tuple[str, int]]:
    """Of chunks of prompts alone. size: bytes of a value that is multiplied."""
    stored = {"F32"} if size == 4 else {"F32", "F16"}
    if isinstance(op, LaneLinear | LaneRoute):
        weights = op.weights if isinstance(op, LaneLinear) else (op.router,)
        if any(tensors[one.weight].type_name not in stored for one in weights):
            yield "weights", PIECE_BYTES
        if isinstance(op, LaneLinear) and op.epilogue not in ("store", "add"):
            yield "products", PIECE_BYTES
    elif isinstance(op, LaneExpertsUp | LaneExpertsDown):
        yield "order", 4 * rows * op.choice.n_used
        if isinstance(op, LaneExpertsDown):
            yield "products", PIECE_BYTES
    elif isinstance(op, LaneDelta):
        yield "channels", 4 * rows * op.shape.n_channels
        yield from ((name, 4 * rows * op.shape.n_inner) for name in ("values", "keys"))
        yield "triangles", 4 * rows * op.shape.n_v_heads * (DELTA_CHUNK + 1)
    elif isinstance(op, LaneLatentHeads):
        yield from _latent_heads(op.mla, rows, n_blocks, size)


def _latent_heads(mla: Mla, rows: int, n_blocks: int, size: int) -> Iterator[tuple[str, int]]:
    """Keys and values of a part of the past, made from latent rows, and what is carried from part to part."""
    block = BLOCK * mla.n_heads * (mla.head_dim + mla.v.n_out) * size
    n = max(1, min(n_blocks, PIECE_BYTES // block))
    yield "latent rows", n * block
    if n < n_blocks:
        yield "carried", 4 * rows * mla.n_heads * (mla.v.n_out + 2)
    yield from ((f"latent {i}", size * _rows_read(one) * one.n_in) for i, one in enumerate((mla.k, mla.v)))


def _latent_partials(op: LaneLatentAttend, rows: int, n_blocks: int) -> int:
    heads = min(_padded(op.mla.n_heads), LATENT_QUERIES)
    tile = 1 if op.rows else max(1, LATENT_QUERIES // heads)
    programs = -(-op.mla.n_heads // max(heads, 16 // tile)) * (1 if op.rows else -(-rows // tile))
    return 4 * rows * op.mla.n_heads * _splits(1.0, programs, n_blocks) * (op.mla.rank + 2)


def _splits(programs: float, there: int, n_blocks: int) -> int:
    """How often the past is split. programs: wanted a multiprocessor; there: without splits."""
    return max(1, min(MAX_SPLITS, round(programs * MULTIPROCESSORS / there), -(-n_blocks // SPLIT_BLOCKS)))


def _rows_read(matrices: HeadMatrices) -> int:
    """Rows from the first of the first head to the last of the last: what lies between them is made too."""
    step = matrices.n_out if matrices.transposed else matrices.step
    return (matrices.n_heads - 1) * step + matrices.n_out


def _padded(n: int) -> int:
    """The next power of two."""
    return 1 << max(0, n - 1).bit_length()
