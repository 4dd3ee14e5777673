# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""Attention of decode in one launch: queries and keys are turned, keys and values stored, the past attended to, and the result
quantised for the matrix behind it, which otherwise are three launches.

A program turns the queries of its KV head for itself. A row's own key and value do not go through the cache: every program of a
head makes them, the last part of the past counts them and stores them. Products are those of `attention_decode`.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.program.lane_ops import Heads, Turn
from engine.triton_kernels.attention_decode import MAX_SPLITS, DecodeConfig
from engine.triton_kernels.gemv import launched
from engine.triton_kernels.merging import keep, merged, splits_used, together
from engine.triton_kernels.paged import F16, LOG2E, Pages, blocks_of, kind_of, load_tile, padded, softcapped, starts
from engine.triton_kernels.position import turned
from engine.triton_kernels.products import awaited
from engine.triton_kernels.quantise import codes_of
from engine.triton_kernels.tensors import Acts, NormWeight
from engine.triton_kernels.workspace import Workspace


@triton.jit
def _store_codes(
    found, codes, scales, sums, row, head, there, WIDTH: tl.constexpr, HEADS: tl.constexpr, V_DIM: tl.constexpr
):  # fmt: skip
    """found [HEADS, V_DIM] as 8-bit codes of a row of WIDTH values."""
    GROUPS: tl.constexpr = V_DIM // 32
    n: tl.constexpr = HEADS * GROUPS
    q, scale, total = codes_of(tl.reshape(found, (n, 32)))
    place = tl.reshape(head[:, None] * GROUPS + tl.arange(0, GROUPS)[None, :], (n,))
    used = tl.reshape(there[:, None] & (tl.arange(0, GROUPS) >= 0)[None, :], (n,))
    row = row.to(tl.int64)
    at = codes + row * WIDTH + place[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(at, q.to(tl.int8), mask=used[:, None])
    tl.store(scales + row * (WIDTH // 32) + place, scale, mask=used)
    tl.store(sums + row * (WIDTH // 16) + place[:, None] * 2 + tl.arange(0, 2)[None, :], total, mask=used[:, None])


@triton.jit(do_not_specialize=["n_splits"])
def _attend_whole(
    q, k, v, norm_q, norm_k, rope, q_scale, keys, values, sinks, gate, positions, seqs, tables, partials, stats, counters, out,
    codes, scales, sums_of, n_splits, scale, softcap, eps_q, eps_k, q_row, k_row, v_row, gate_row, out_row, table_row, k_step,
    v_step,
    KV_HEADS: tl.constexpr, EACH: tl.constexpr, QUERIES: tl.constexpr, Q_STEP: tl.constexpr, HEAD_DIM: tl.constexpr,
    V_DIM: tl.constexpr, BLOCK: tl.constexpr, KEYS: tl.constexpr, LEAST: tl.constexpr, WINDOW: tl.constexpr,
    N_ROT: tl.constexpr, NEOX: tl.constexpr, ROPE_Q: tl.constexpr, ROPE_K: tl.constexpr, NORM_Q: tl.constexpr,
    NORM_K: tl.constexpr, LAST: tl.constexpr, SCALED: tl.constexpr, SINKS: tl.constexpr, CAPPED: tl.constexpr,
    GATED: tl.constexpr, CODES: tl.constexpr, HEADS: tl.constexpr, TOGETHER: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """One KV head of one row over one part of its past; the last part to finish merges them."""
    awaited(EARLY)
    kv, split, row, i = tl.program_id(0), tl.program_id(1), tl.program_id(2), tl.arange(0, QUERIES)
    head, there = kv * EACH + i, i < EACH
    position, seq = tl.load(positions + row), tl.load(seqs + row)
    first = tl.maximum(position - WINDOW + 1, 0) if WINDOW else 0
    first_block = first // BLOCK
    n_blocks = position // BLOCK + 1 - first_block
    n_used = splits_used(n_blocks, n_splits, LEAST)
    if split >= n_used:
        return
    table = tables + seq.to(tl.int64) * table_row
    begin = (first_block + n_blocks * split // n_used) * BLOCK
    limit = (first_block + n_blocks * (split + 1) // n_used) * BLOCK
    end = tl.minimum(position, limit)  # the row's own key is not in the cache yet
    key = begin + tl.arange(0, KEYS)
    next_block = blocks_of(table, key, (key >= first) & (key < end), BLOCK, True)

    d, e, one = tl.arange(0, HEAD_DIM), tl.arange(0, V_DIM), tl.arange(0, 1)
    own_v = tl.load(v + row.to(tl.int64) * v_row + kv * V_DIM + e).to(values.dtype.element_ty)
    own_k = turned(
        k + row.to(tl.int64) * k_row, one + kv * HEAD_DIM, one == 0, one + kv, position, norm_k, eps_k, rope, HEAD_DIM, HEAD_DIM,
        HEAD_DIM if NORM_K else 0, HEAD_DIM, False, LAST, 0, N_ROT if ROPE_K else 0, NEOX,
    ).to(keys.dtype.element_ty)  # fmt: skip
    value = turned(
        q + row.to(tl.int64) * q_row, head * Q_STEP, there, head, position, norm_q, eps_q, rope, HEAD_DIM, HEAD_DIM,
        HEAD_DIM if NORM_Q else 0, HEAD_DIM, False, LAST, 0, N_ROT if ROPE_Q else 0, NEOX,
    )  # fmt: skip
    if SCALED:
        value = value * tl.load(q_scale + position)
    q1 = (value * (scale if CAPPED else scale * LOG2E)).to(tl.float16)

    last = split == n_used - 1
    largest = tl.full([QUERIES], -1e30, tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    if SINKS and split == 0:
        largest = tl.load(sinks + head, mask=there, other=0) * LOG2E
        total += 1
    score = softcapped(tl.sum(q1.to(tl.float32) * own_k.to(tl.float32), 1), softcap, CAPPED)
    score = tl.where(last, score, float("-inf"))
    higher = tl.maximum(largest, score)
    weight = tl.exp2(score - higher)
    total = total * tl.exp2(largest - higher) + weight
    largest = higher
    sums = weight.to(own_v.dtype).to(tl.float32)[:, None] * own_v.to(tl.float32)[None, :]
    for start in range(begin, limit, KEYS):
        key = start + tl.arange(0, KEYS)
        seen = (key >= first) & (key < end)
        block, ahead = next_block, key + KEYS  # see `attention_decode`
        next_block = blocks_of(table, ahead, (ahead >= first) & (ahead < end), BLOCK, True)
        at = starts(block, k_step, kv, key, BLOCK, HEAD_DIM)
        tile = load_tile(keys, keys, at, at, seen, 0, HEAD_DIM, HEAD_DIM, 1, False, False)
        scores = softcapped(tl.dot(q1, tl.trans(tile), input_precision="ieee"), softcap, CAPPED)
        scores = tl.where(seen[None, :], scores, float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        fade = tl.exp2(largest - higher)
        at = starts(block, v_step, kv, key, BLOCK, V_DIM)
        tile = load_tile(values, values, at, at, seen, 0, V_DIM, V_DIM, 1, True, False)
        sums = tl.dot(weights.to(tile.dtype), tile, sums * fade[:, None], input_precision="ieee")
        total = total * fade + tl.sum(weights, 1)
        largest = higher
    keep(partials, stats, row * (KV_HEADS * EACH) + head, there, split, sums, largest, total, n_splits, V_DIM, V_DIM)
    if last:
        own_block = tl.load(table + position // BLOCK).to(tl.int64)
        slot = kv * BLOCK + position % BLOCK
        tl.store(keys + own_block * k_step + slot * HEAD_DIM + d[None, :], own_k)
        tl.store(values + own_block * v_step + slot * V_DIM + e, own_v)
    tl.debug_barrier()  # everything this program stored comes before its count
    counter = counters + row * KV_HEADS + kv
    if tl.atomic_add(counter, 1, sem="acq_rel") == n_used - 1:
        tl.store(counter, 0)
        j = tl.arange(0, HEADS)
        mine, used = kv * EACH + j, j < EACH
        found = merged(partials, stats, row * (KV_HEADS * EACH) + mine, used, n_used, 0, n_splits, TOGETHER, V_DIM, V_DIM)
        if GATED:
            at = row.to(tl.int64) * gate_row + mine[:, None] * Q_STEP + HEAD_DIM + e[None, :]
            found = found / (1 + tl.exp2(tl.load(gate + at, mask=used[:, None], other=0) * -LOG2E))
        tl.store(out + row.to(tl.int64) * out_row + mine[:, None] * V_DIM + e[None, :], found, mask=used[:, None])
        if CODES:
            _store_codes(found, codes, scales, sums_of, row, mine, used, KV_HEADS * EACH * V_DIM, HEADS, V_DIM)


def fits(pages: Pages, heads: Heads, turn_q: Turn, turn_k: Turn) -> bool:
    """Whether this attention can be one launch: 16-bit caches, heads of a power of two values, norms of single heads."""
    sizes = (heads.head_dim, heads.v_dim)
    return (
        pages.cache.values is not None
        and kind_of(pages.cache.keys, pages.cache.k_scales) == kind_of(pages.cache.values, pages.cache.v_scales) == int(F16.value)
        and all(size >= 32 and size & (size - 1) == 0 for size in sizes)
        and not (turn_q.whole or turn_k.whole)
    )


def attend_whole(
    workspace: Workspace,
    multiprocessors: int,
    config: DecodeConfig,
    pages: Pages,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    heads: Heads,
    turn_q: Turn,
    turn_k: Turn,
    norm_q: NormWeight | None,
    norm_k: NormWeight | None,
    rope_table: Tensor | None,
    q_scale: Tensor | None,
    sinks: Tensor | None,
    gate: Tensor | None,
    out: Tensor,
    acts: Acts | None,
    *,
    early: int = 0,
) -> None:
    """`position`, `attend` with rows, and `prepare` of the result where acts has codes alone; see `Kernels` for each.

    early: see `linear_of_few`.
    """
    cache, step, n_rows, table = pages.cache, pages.step, len(q), pages.table
    assert cache.values is not None
    each = heads.n_heads // heads.n_kv_heads
    reach = table.shape[1] if heads.window is None else min(table.shape[1], (heads.window + 1) // pages.block + 2)
    wanted = round(config.programs * multiprocessors / heads.n_kv_heads)
    splits = max(1, min(MAX_SPLITS, wanted, -(-reach // config.least)))
    partials = workspace.of("partials", (n_rows, heads.n_heads, splits, heads.v_dim))
    stats = workspace.of("stats", (n_rows, heads.n_heads, splits, 2))
    counters = workspace.zeros("counters", n_rows * heads.n_kv_heads)
    rope, group = turn_q.rope or turn_k.rope, padded(each, 1)
    coded = acts is not None and acts.codes is not None
    codes, scales, sums = (acts.codes, acts.scales, acts.sums) if acts is not None else (None, None, None)
    _attend_whole[heads.n_kv_heads, splits, n_rows](
        q, k, v, None if norm_q is None else norm_q.weight, None if norm_k is None else norm_k.weight, rope_table, q_scale,
        cache.keys, cache.values, sinks, gate, step.positions, step.seq_of_row, table, partials, stats, counters, out,
        codes, scales, sums, splits, heads.scale, heads.softcap, 0.0 if norm_q is None else norm_q.eps,
        0.0 if norm_k is None else norm_k.eps, q.stride(0), k.stride(0), v.stride(0), 0 if gate is None else gate.stride(0),
        out.stride(0), table.stride(0), cache.keys.stride(0), cache.values.stride(0),
        KV_HEADS=heads.n_kv_heads, EACH=each, QUERIES=padded(each), Q_STEP=heads.q_step, HEAD_DIM=heads.head_dim,
        V_DIM=heads.v_dim, BLOCK=pages.block, KEYS=config.keys, LEAST=config.least, WINDOW=heads.window or 0,
        N_ROT=0 if rope_table is None else rope_table.shape[1], NEOX=rope is not None and rope.kind == "neox",
        ROPE_Q=turn_q.rope is not None, ROPE_K=turn_k.rope is not None, NORM_Q=norm_q is not None, NORM_K=norm_k is not None,
        LAST=turn_q.norm_last or turn_k.norm_last, SCALED=q_scale is not None, SINKS=sinks is not None,
        CAPPED=heads.softcap != 0, GATED=gate is not None, CODES=coded, HEADS=group, TOGETHER=together(group, heads.v_dim),
        EARLY=early, **launched(early), num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
