# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""Prefill attention: tiles of rows of one head go over the keys of their past, with an online softmax.

Keys lie in the paged cache, or, for latent attention, in a piece of scratch that holds keys [key_begin, key_end) of every head;
then what a row found in one piece is carried to the next.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from engine.program.lane_ops import Heads
from engine.triton_kernels.paged import INT8, LOG2E, Pages, blocks_of, cut, kind_of, load_tile, padded, softcapped, starts


@triton.jit
def _score(
    q1, q2, keys, k_scales, at, scales_at, seen, softcap,
    HEAD_DIM: tl.constexpr, D1: tl.constexpr, D2: tl.constexpr, K_KIND: tl.constexpr, CAPPED: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """[rows, keys] to base 2."""
    k = load_tile(keys, k_scales, at, scales_at, seen, 0, D1, HEAD_DIM, K_KIND, False, ASM)
    scores = tl.dot(q1, tl.trans(k), input_precision="ieee")
    if D2:
        more = load_tile(keys, k_scales, at, scales_at, seen, D1, D2, HEAD_DIM, K_KIND, False, ASM)
        scores = tl.dot(q2, tl.trans(more), scores, input_precision="ieee")
    if K_KIND == INT8:
        scores = scores * tl.load(k_scales + scales_at, mask=seen, other=0).to(tl.float32)[None, :]
    return softcapped(scores, softcap, CAPPED)


@triton.jit(do_not_specialize=["n_rows", "key_begin", "key_end", "first_seq"])
def _attend_tiles(
    q, keys, values, k_scales, v_scales, sinks, gate, positions, seqs, tables, carried, out, n_rows, scale, softcap,
    key_begin, key_end, first_seq, q_row, gate_row, out_row, table_row, k_step, v_step, ks_step, vs_step,
    N_HEADS: tl.constexpr, EACH: tl.constexpr, ROWS: tl.constexpr, Q_STEP: tl.constexpr, HEAD_DIM: tl.constexpr,
    D1: tl.constexpr, D2: tl.constexpr, V_DIM: tl.constexpr, V_WIDE: tl.constexpr, BLOCK: tl.constexpr, KEYS: tl.constexpr,
    WINDOW: tl.constexpr, K_KIND: tl.constexpr, V_KIND: tl.constexpr, K_GROUPS: tl.constexpr, V_GROUPS: tl.constexpr,
    SINKS: tl.constexpr, CAPPED: tl.constexpr, GATED: tl.constexpr, PAGED: tl.constexpr, CARRY_IN: tl.constexpr,
    CARRY_OUT: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """ROWS rows of one head and one sequence. carried: f32 [n_rows, n_heads, V_DIM + 2], sums, largest score, total."""
    # The last tiles have the most keys: they begin first.
    tile, head, seq = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1), first_seq + tl.program_id(2)
    row = tile * ROWS + tl.arange(0, ROWS)
    mine = row < n_rows
    mine = mine & (tl.load(seqs + row, mask=mine, other=-1) == seq)
    position = tl.load(positions + row, mask=mine, other=-1)
    newest = tl.max(position, 0)
    if newest < 0:
        return
    if CARRY_IN and CARRY_OUT and key_begin > newest:
        return  # what is carried stays as it is
    oldest = tl.min(tl.where(mine, position, newest), 0)
    end = tl.minimum(newest + 1, key_end)
    begin = key_begin
    if WINDOW:
        begin = tl.maximum(begin, (oldest - WINDOW + 1) // KEYS * KEYS)
    kv, table = head // EACH, tables + seq.to(tl.int64) * table_row

    d1 = tl.arange(0, D1)
    from_q = q + row.to(tl.int64)[:, None] * q_row + head * Q_STEP
    factor = scale if CAPPED else scale * LOG2E
    q1 = tl.load(from_q + d1[None, :], mask=mine[:, None] & (d1 < HEAD_DIM)[None, :], other=0) * factor
    q1 = q1.to(tl.float32 if K_KIND == 0 else tl.float16)
    q2 = q1
    if D2:
        d2 = D1 + tl.arange(0, D2)
        q2 = tl.load(from_q + d2[None, :], mask=mine[:, None] & (d2 < HEAD_DIM)[None, :], other=0) * factor
        q2 = q2.to(q1.dtype)
    d = tl.arange(0, V_WIDE)
    kept = mine[:, None] & (d < V_DIM)[None, :]
    place = (row.to(tl.int64) * N_HEADS + head) * (V_DIM + 2)
    if CARRY_IN:
        sums = tl.load(carried + place[:, None] + d[None, :], mask=kept, other=0)
        largest = tl.load(carried + place + V_DIM, mask=mine, other=0)
        total = tl.load(carried + place + V_DIM + 1, mask=mine, other=1)
    else:
        sums = tl.zeros([ROWS, V_WIDE], tl.float32)
        largest = tl.full([ROWS], -1e30, tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        if SINKS:
            largest = tl.zeros([ROWS], tl.float32) + tl.load(sinks + head) * LOG2E
            total += 1

    # Keys that every row sees come without a mask.
    plain = begin
    if not WINDOW:
        plain = begin + tl.maximum(tl.minimum(oldest + 1, end) - begin, 0) // KEYS * KEYS
        key = begin - key_begin + tl.arange(0, KEYS)
        next_block = blocks_of(table, key, key < plain - key_begin, BLOCK, PAGED)
        for start in range(begin, plain, KEYS):
            key = start + tl.arange(0, KEYS)
            seen = tl.full([KEYS], True, tl.int1)
            block, ahead = next_block, key - key_begin + KEYS  # see `attention_decode`
            next_block = blocks_of(table, ahead, ahead < plain - key_begin, BLOCK, PAGED)
            at = starts(block, k_step, kv, key, BLOCK, HEAD_DIM)
            scales_at = starts(block, ks_step, kv, key, BLOCK, K_GROUPS)
            scores = _score(q1, q2, keys, k_scales, at, scales_at, seen, softcap, HEAD_DIM, D1, D2, K_KIND, CAPPED, ASM)
            higher = tl.maximum(largest, tl.max(scores, 1))
            weights = tl.exp2(scores - higher[:, None])
            fade = tl.exp2(largest - higher)
            at = starts(block, v_step, kv, key, BLOCK, V_DIM)
            scales_at = starts(block, vs_step, kv, key, BLOCK, V_GROUPS)
            v = load_tile(values, v_scales, at, scales_at, seen, 0, V_WIDE, V_DIM, V_KIND, True, ASM)
            sums = tl.dot(weights.to(v.dtype), v, sums * fade[:, None], input_precision="ieee")
            total = total * fade + tl.sum(weights, 1)
            largest = higher
    for start in range(plain, end, KEYS):
        key = start + tl.arange(0, KEYS)
        seen = key < end
        if WINDOW:
            seen = seen & (key > oldest - WINDOW)
        block = blocks_of(table, key - key_begin, seen, BLOCK, PAGED)
        at = starts(block, k_step, kv, key, BLOCK, HEAD_DIM)
        scales_at = starts(block, ks_step, kv, key, BLOCK, K_GROUPS)
        scores = _score(q1, q2, keys, k_scales, at, scales_at, seen, softcap, HEAD_DIM, D1, D2, K_KIND, CAPPED, ASM)
        visible = seen[None, :] & (key[None, :] <= position[:, None])
        if WINDOW:
            visible = visible & (key[None, :] > position[:, None] - WINDOW)
        scores = tl.where(visible, scores, float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        fade = tl.exp2(largest - higher)
        at = starts(block, v_step, kv, key, BLOCK, V_DIM)
        scales_at = starts(block, vs_step, kv, key, BLOCK, V_GROUPS)
        v = load_tile(values, v_scales, at, scales_at, seen, 0, V_WIDE, V_DIM, V_KIND, True, ASM)
        sums = tl.dot(weights.to(v.dtype), v, sums * fade[:, None], input_precision="ieee")
        total = total * fade + tl.sum(weights, 1)
        largest = higher

    if CARRY_OUT:
        tl.store(carried + place[:, None] + d[None, :], sums, mask=kept)
        tl.store(carried + place + V_DIM, largest, mask=mine)
        tl.store(carried + place + V_DIM + 1, total, mask=mine)
    else:
        found = sums / tl.where(mine, total, 1)[:, None]
        if GATED:
            at = row.to(tl.int64)[:, None] * gate_row + head * Q_STEP + HEAD_DIM + d[None, :]
            found = found / (1 + tl.exp2(tl.load(gate + at, mask=kept, other=0) * -LOG2E))
        tl.store(out + row.to(tl.int64)[:, None] * out_row + head * V_DIM + d[None, :], found, mask=kept)


@dataclass(frozen=True, slots=True)
class TileConfig:
    """rows, keys: of a tile."""

    rows: int = 128
    keys: int = 128
    warps: int = 8
    stages: int = 2


@dataclass(frozen=True, slots=True)
class Piece:
    """Keys [begin, end) of one sequence and every head in scratch. carried: see `_attend_tiles`; first, last: of the pieces."""

    seq: int
    begin: int
    end: int
    carried: Tensor
    first: bool
    last: bool


EVERY_KEY = (1 << 31) - 1


def attend_tiles(
    config: TileConfig,
    pages: Pages,
    q: Tensor,
    heads: Heads,
    sinks: Tensor | None,
    gate: Tensor | None,
    out: Tensor,
    piece: Piece | None = None,
) -> None:
    """Attention of chunks of rows; see `engine.triton_kernels.kernels.Kernels.attend`. With a piece, `pages` hold it alone."""
    cache, step, n_rows = pages.cache, pages.step, len(q)
    assert cache.values is not None
    k_scales, v_scales, (d1, d2) = cache.k_scales, cache.v_scales, cut(heads.head_dim)
    table = pages.table
    _attend_tiles[triton.cdiv(n_rows, config.rows), heads.n_heads, table.shape[0] if piece is None else 1](
        q, cache.keys, cache.values, k_scales, v_scales, sinks, gate, step.positions, step.seq_of_row, table,
        None if piece is None else piece.carried, out, n_rows, heads.scale, heads.softcap,
        0 if piece is None else piece.begin, EVERY_KEY if piece is None else piece.end, 0 if piece is None else piece.seq,
        q.stride(0), 0 if gate is None else gate.stride(0), out.stride(0), table.stride(0), cache.keys.stride(0),
        cache.values.stride(0), 0 if k_scales is None else k_scales.stride(0), 0 if v_scales is None else v_scales.stride(0),
        N_HEADS=heads.n_heads, EACH=heads.n_heads // heads.n_kv_heads, ROWS=config.rows, Q_STEP=heads.q_step,
        HEAD_DIM=heads.head_dim, D1=d1, D2=d2, V_DIM=heads.v_dim, V_WIDE=padded(heads.v_dim), BLOCK=pages.block,
        KEYS=config.keys, WINDOW=heads.window or 0, K_KIND=kind_of(cache.keys, k_scales),
        V_KIND=kind_of(cache.values, v_scales), K_GROUPS=0 if k_scales is None else k_scales.shape[-1],
        V_GROUPS=0 if v_scales is None else v_scales.shape[-1], SINKS=sinks is not None, CAPPED=heads.softcap != 0,
        GATED=gate is not None, PAGED=piece is None, CARRY_IN=piece is not None and not piece.first,
        CARRY_OUT=piece is not None and not piece.last, ASM=pages.asm, num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip


def tile_config(heads: Heads, pages: Pages) -> TileConfig:
    """What measured best; tiles of f32 are multiplied without tensor cores and need many registers."""
    if pages.exact:
        return TileConfig(rows=32, keys=16, warps=8, stages=1)
    if heads.v_dim > 128:
        return TileConfig(rows=64, keys=64, warps=8, stages=2)
    return TileConfig() if heads.head_dim <= 128 else TileConfig(keys=64, stages=3)
