# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""Latent attention for many rows: keys and values of every head are made once a chunk, piece by piece, and attended to as tiles.

A piece is a cache of its own in scratch whose blocks lie in order; how many keys it holds is bounded by bytes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.arch.spec import Mla
from engine.program.lane_ops import Heads
from engine.triton_kernels.attention_prefill import Piece, TileConfig, attend_tiles, tile_config
from engine.triton_kernels.fitting import Fitting
from engine.triton_kernels.heads import floats
from engine.triton_kernels.paged import PRECISION, Pages, blocks_of, kind_of, load_tile, padded, starts
from engine.triton_kernels.tensors import Cache, Matrix
from engine.triton_kernels.workspace import Workspace

PIECE_BYTES = 64 << 20
"""Of keys and values in scratch."""


@triton.jit(do_not_specialize=["n_rows", "seq", "begin", "limit"])
def _make(
    pool, scales, wk, wv, positions, seqs, table, keys, values, n_rows, seq, begin, limit, step, scale_step, k_step, v_step,
    N_HEADS: tl.constexpr, RANK: tl.constexpr, N_ROT: tl.constexpr, ROT_WIDE: tl.constexpr, NOPE: tl.constexpr,
    NOPE_WIDE: tl.constexpr, V_DIM: tl.constexpr, V_WIDE: tl.constexpr, BLOCK: tl.constexpr, KEYS: tl.constexpr,
    PART: tl.constexpr, ROWS: tl.constexpr, KIND: tl.constexpr, GROUPS: tl.constexpr,
    ASM: tl.constexpr,
):  # fmt: skip
    """Keys [k c | turned] and values v c of KEYS tokens of one head, unless they lie behind every row of the sequence."""
    head = tl.program_id(0)
    start = begin + tl.program_id(1) * KEYS
    newest = tl.full([ROWS], -1, tl.int32)
    for first in range(0, n_rows, ROWS):
        row = first + tl.arange(0, ROWS)
        mine = tl.load(seqs + row, mask=row < n_rows, other=-1) == seq
        newest = tl.maximum(newest, tl.load(positions + row, mask=mine, other=-1))
    end = tl.minimum(tl.max(newest, 0) + 1, limit)
    if start >= end:
        return
    key = start + tl.arange(0, KEYS)
    seen = key < end
    block = blocks_of(table, key, seen, BLOCK, True)
    place = starts(block, step, 0, key, BLOCK, RANK + N_ROT)
    scale_place = starts(block, scale_step, 0, key, BLOCK, GROUPS)
    n, d, e = tl.arange(0, NOPE_WIDE), tl.arange(0, V_WIDE), tl.arange(0, ROT_WIDE)
    k_sums, v_sums = tl.zeros([KEYS, NOPE_WIDE], tl.float32), tl.zeros([KEYS, V_WIDE], tl.float32)
    for part in tl.static_range((RANK + PART - 1) // PART):
        c = load_tile(pool, scales, place, scale_place, seen, part * PART, PART, RANK, KIND, True, ASM)
        r = part * PART + tl.arange(0, PART)
        inside = (r < RANK)[:, None]
        k_part = tl.load(wk + head * k_step + n[None, :] * RANK + r[:, None], mask=inside & (n < NOPE)[None, :], other=0)
        v_part = tl.load(wv + head * v_step + d[None, :] * RANK + r[:, None], mask=inside & (d < V_DIM)[None, :], other=0)
        k_sums = tl.dot(c, k_part, k_sums, input_precision=PRECISION)
        v_sums = tl.dot(c, v_part, v_sums, input_precision=PRECISION)
    turned = load_tile(pool, scales, place, scale_place, seen, RANK, ROT_WIDE, RANK + N_ROT, KIND, True, ASM)
    kind = keys.dtype.element_ty
    at = (key - begin).to(tl.int64)
    # Blocks in order: [block][head][token in it][width].
    at = (at // BLOCK * N_HEADS + head) * BLOCK + at % BLOCK
    to = keys + at[:, None] * (NOPE + N_ROT)
    tl.store(to + n[None, :], k_sums.to(kind), mask=seen[:, None] & (n < NOPE)[None, :])
    tl.store(to + NOPE + e[None, :], turned.to(kind), mask=seen[:, None] & (e < N_ROT)[None, :])
    tl.store(values + at[:, None] * V_DIM + d[None, :], v_sums.to(kind), mask=seen[:, None] & (d < V_DIM)[None, :])


def latent_heads(
    workspace: Workspace,
    fitting: Fitting,
    pages: Pages,
    q: Tensor,
    mla: Mla,
    k: Matrix,
    v: Matrix,
    out: Tensor,
    *,
    asm: bool,
    piece_bytes: int = PIECE_BYTES,
) -> None:
    """See `engine.triton_kernels.kernels.Kernels.latent_heads`."""
    cache, step, block = pages.cache, pages.step, pages.block
    kind = torch.float32 if pages.exact else torch.float16
    name, width = str(kind).removeprefix("torch."), k.n_out + mla.rope.n_rot
    wk, wv = (floats(workspace, f"latent.{i}", one, kind, asm=asm) for i, one in enumerate((k, v)))
    capacity = pages.table.shape[1]
    fits = piece_bytes // (block * mla.n_heads * (width + v.n_out) * kind.itemsize)
    n_blocks = max(1, min(capacity, fits))
    keys = workspace.of("latent.keys", (n_blocks, mla.n_heads, block, width), name)
    values = workspace.of("latent.values", (n_blocks, mla.n_heads, block, v.n_out), name)
    carried = workspace.of("latent.carried", (len(q), mla.n_heads, v.n_out + 2) if n_blocks < capacity else (1,))
    made = replace(pages, cache=Cache(keys, values, None, None, cache.group))
    heads = Heads(mla.n_heads, mla.n_heads, mla.head_dim, v.n_out, mla.scale, mla.head_dim)
    config = tile_config(heads, made)
    tokens, warps = (32, 4) if pages.exact else (128, 8)
    pieces = range(0, capacity, n_blocks)
    for seq, first in product(range(pages.table.shape[0]), pieces):
        last = min(first + n_blocks, capacity)
        _make[mla.n_heads, triton.cdiv((last - first) * block, tokens)](
            cache.keys, cache.k_scales, wk, wv, step.positions, step.seq_of_row, pages.table[seq], keys, values, len(q), seq,
            first * block, last * block,
            cache.keys.stride(0), 0 if cache.k_scales is None else cache.k_scales.stride(0),
            k.step // k.row_bytes * mla.rank, v.step // v.row_bytes * mla.rank,
            N_HEADS=mla.n_heads, RANK=mla.rank, N_ROT=mla.rope.n_rot, ROT_WIDE=padded(mla.rope.n_rot), NOPE=k.n_out,
            NOPE_WIDE=padded(k.n_out), V_DIM=v.n_out, V_WIDE=padded(v.n_out), BLOCK=block, KEYS=tokens,
            PART=min(64 if pages.exact else 128, padded(mla.rank)), ROWS=min(1024, padded(len(q))),
            KIND=kind_of(cache.keys, cache.k_scales), GROUPS=0 if cache.k_scales is None else cache.k_scales.shape[-1],
            ASM=pages.asm, num_warps=warps, num_stages=2,
        )  # fmt: skip
        piece = Piece(seq, first * block, last * block, carried, first == 0, last == capacity)
        fitting.launch(partial(_attend, made, q, heads, out, piece), config, heads, made.kinds)


def _attend(made: Pages, q: Tensor, heads: Heads, out: Tensor, piece: Piece, config: TileConfig) -> None:
    attend_tiles(config, made, q, heads, None, None, out, piece)
