# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""Absorbed latent attention: all heads read the same cached rows, as keys and as values, so that a row is loaded once for both.

Queries are [absorbed | turned] heads of one row (decode) or of a few (short chunks); the past is split as in decode attention.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from engine.arch.spec import Mla
from engine.triton_kernels.attention_decode import MAX_SPLITS
from engine.triton_kernels.merging import keep, merged, rows_of, splits_used, together
from engine.triton_kernels.paged import LOG2E, Pages, blocks_of, kind_of, load_tile, padded, starts
from engine.triton_kernels.workspace import Workspace


@triton.jit(do_not_specialize=["n_rows", "n_splits"])
def _attend_latent(
    absorbed, q, pool, scales, positions, seqs, tables, partials, stats, n_rows, scale, absorbed_row, q_row, table_row, step,
    scale_step, n_splits,
    N_SEQS: tl.constexpr, N_HEADS: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr,
    RANK: tl.constexpr, RANK_WIDE: tl.constexpr, N_ROT: tl.constexpr, ROT_WIDE: tl.constexpr, BLOCK: tl.constexpr,
    KEYS: tl.constexpr, LEAST: tl.constexpr, KIND: tl.constexpr, GROUPS: tl.constexpr,
    EARLY: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """HEADS heads of ROWS rows of one sequence over one part of its past."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
    part, split, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2) // N_SEQS
    seq = tl.program_id(2) % N_SEQS
    i = tl.arange(0, ROWS * HEADS)
    row, mine, position = rows_of(positions, seqs, tile, seq, i // HEADS, n_rows, ROWS)
    if ROWS == 1:
        seq = tl.load(seqs + tile)
    newest = tl.max(position, 0)
    if newest < 0:
        return
    n_blocks = newest // BLOCK + 1
    n_used = splits_used(n_blocks, n_splits, LEAST)
    if split >= n_used:
        return
    table = tables + seq.to(tl.int64) * table_row
    begin, limit = n_blocks * split // n_used * BLOCK, n_blocks * (split + 1) // n_used * BLOCK
    end = tl.minimum(newest + 1, limit)

    head = part * HEADS + i % HEADS
    there = mine & (head < N_HEADS)
    d, e = tl.arange(0, RANK_WIDE), tl.arange(0, ROT_WIDE)
    at = absorbed + row.to(tl.int64)[:, None] * absorbed_row + head[:, None] * RANK + d[None, :]
    q1 = tl.load(at, mask=there[:, None] & (d < RANK)[None, :], other=0) * (scale * LOG2E)
    at = q + row.to(tl.int64)[:, None] * q_row + head[:, None] * HEAD_DIM + HEAD_DIM - N_ROT + e[None, :]
    q2 = tl.load(at, mask=there[:, None] & (e < N_ROT)[None, :], other=0) * (scale * LOG2E)
    q1, q2 = q1.to(tl.float32 if KIND == 0 else tl.float16), q2.to(tl.float32 if KIND == 0 else tl.float16)

    largest = tl.full([ROWS * HEADS], -1e30, tl.float32)
    total = tl.zeros([ROWS * HEADS], tl.float32)
    sums = tl.zeros([ROWS * HEADS, RANK_WIDE], tl.float32)
    key = begin + tl.arange(0, KEYS)
    next_block = blocks_of(table, key, key < end, BLOCK, True)
    for start in range(begin, limit, KEYS):
        key = start + tl.arange(0, KEYS)
        seen = key < end
        block, ahead = next_block, key + KEYS  # see `attention_decode`
        next_block = blocks_of(table, ahead, ahead < end, BLOCK, True)
        place = starts(block, step, 0, key, BLOCK, RANK + N_ROT)
        scale_place = starts(block, scale_step, 0, key, BLOCK, GROUPS)
        c = load_tile(pool, scales, place, scale_place, seen, 0, RANK_WIDE, RANK, KIND, True, ASM)
        turned = load_tile(pool, scales, place, scale_place, seen, RANK, ROT_WIDE, RANK + N_ROT, KIND, True, ASM)
        scores = tl.dot(q1, tl.trans(c), input_precision="ieee")
        scores = tl.dot(q2, tl.trans(turned), scores, input_precision="ieee")
        visible = seen[None, :]
        if ROWS > 1:
            visible = visible & (key[None, :] <= position[:, None])
        scores = tl.where(visible, scores, float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        fade = tl.exp2(largest - higher)
        sums = tl.dot(weights.to(c.dtype), c, sums * fade[:, None], input_precision="ieee")
        total = total * fade + tl.sum(weights, 1)
        largest = higher
    keep(partials, stats, row * N_HEADS + head, there, split, sums, largest, total, n_splits, RANK, RANK_WIDE)


@triton.jit(do_not_specialize=["n_rows", "n_splits"])
def _merge_latent(
    partials, stats, positions, seqs, out, n_rows, n_splits, out_row,
    N_HEADS: tl.constexpr, ROWS: tl.constexpr, RANK: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
    LEAST: tl.constexpr, TOGETHER: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """WIDE values of one head of one row; the splits are those of its tile."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
    head, begin, row = tl.program_id(0) + tl.arange(0, 1), tl.program_id(1) * WIDE, tl.program_id(2)
    seq = tl.load(seqs + row)
    _, _, position = rows_of(positions, seqs, row // ROWS, seq, tl.arange(0, ROWS), n_rows, ROWS)
    n_used = splits_used(tl.max(position, 0) // BLOCK + 1, n_splits, LEAST)
    found = merged(partials, stats, row * N_HEADS + head, head < N_HEADS, n_used, begin, n_splits, TOGETHER, RANK, WIDE)
    d = begin + tl.arange(0, WIDE)
    tl.store(out + row.to(tl.int64) * out_row + head[:, None] * RANK + d[None, :], found, mask=(d < RANK)[None, :])


@dataclass(frozen=True, slots=True)
class LatentConfig:
    """keys: at a time; least: blocks of a split; programs: wanted a multiprocessor; queries: of a program.

    early: see `DecodeConfig`.
    """

    keys: int = 64
    warps: int = 8
    stages: int = 3
    least: int = 2
    programs: float = 1.0
    queries: int = 64
    early: bool = False


def latent_attend(
    workspace: Workspace,
    multiprocessors: int,
    config: LatentConfig,
    pages: Pages,
    absorbed: Tensor,
    q: Tensor,
    mla: Mla,
    out: Tensor,
    *,
    rows: bool,
) -> None:
    """See `engine.triton_kernels.kernels.Kernels.latent_attend`."""
    cache, step, n_rows, table = pages.cache, pages.step, len(q), pages.table
    heads = min(padded(mla.n_heads, 1), config.queries)
    tile = 1 if rows else max(1, config.queries // heads)
    heads = max(heads, 16 // tile)
    parts, n_tiles, n_seqs = -(-mla.n_heads // heads), -(-n_rows // tile), 1 if tile == 1 else table.shape[0]
    # In decode the number of rows must not matter to a row, in prefill tiles fill the device.
    programs = parts * (1 if rows else n_tiles)
    wanted = round(config.programs * multiprocessors / programs)
    splits = max(1, min(MAX_SPLITS, wanted, -(-table.shape[1] // config.least)))
    partials = workspace.of("partials", (n_rows, mla.n_heads, splits, mla.rank))
    stats = workspace.of("stats", (n_rows, mla.n_heads, splits, 2))
    _attend_latent[parts, splits, n_tiles * n_seqs](
        absorbed, q, cache.keys, cache.k_scales, step.positions, step.seq_of_row, table, partials, stats, n_rows, mla.scale,
        absorbed.stride(0), q.stride(0), table.stride(0), cache.keys.stride(0),
        0 if cache.k_scales is None else cache.k_scales.stride(0), splits,
        N_SEQS=n_seqs, N_HEADS=mla.n_heads, HEADS=heads, ROWS=tile, HEAD_DIM=mla.head_dim, RANK=mla.rank,
        RANK_WIDE=padded(mla.rank), N_ROT=mla.rope.n_rot, ROT_WIDE=padded(mla.rope.n_rot), BLOCK=pages.block, KEYS=config.keys,
        LEAST=config.least, KIND=kind_of(cache.keys, cache.k_scales),
        GROUPS=0 if cache.k_scales is None else cache.k_scales.shape[-1], EARLY=config.early,
        ASM=pages.asm, launch_pdl=config.early, num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    wide = min(128, padded(mla.rank))
    _merge_latent[mla.n_heads, triton.cdiv(mla.rank, wide), n_rows](
        partials, stats, step.positions, step.seq_of_row, out, n_rows, splits, out.stride(0),
        N_HEADS=mla.n_heads, ROWS=tile, RANK=mla.rank, WIDE=wide, BLOCK=pages.block, LEAST=config.least,
        TOGETHER=together(1, wide), EARLY=config.early, launch_pdl=config.early, num_warps=4,
    )  # fmt: skip
