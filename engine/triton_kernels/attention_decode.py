# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""Attention of few rows: a row, or a tile of a short chunk, reads its past once, split over KV heads and parts of the past.

All query heads of a KV head share a pass. The number of parts is fixed when a graph is captured; those that a past is too short
for leave at once. In decode the parts of a row depend on its past alone, not on who else is in the step.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from engine.program.lane_ops import Heads
from engine.triton_kernels.merging import keep, merged, rows_of, splits_used, together
from engine.triton_kernels.paged import INT8, LOG2E, Pages, blocks_of, cut, kind_of, load_tile, padded, softcapped, starts
from engine.triton_kernels.workspace import Workspace


@triton.jit
def _finish(
    partials, stats, gate, out, row, head, there, n_used, n_splits, gate_row, out_row,
    N_HEADS: tl.constexpr, Q_STEP: tl.constexpr, HEAD_DIM: tl.constexpr, V_DIM: tl.constexpr, V_WIDE: tl.constexpr,
    TOGETHER: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    """Merges the splits of some heads of a row, multiplies with their gates and stores."""
    found = merged(partials, stats, row * N_HEADS + head, there, n_used, 0, n_splits, TOGETHER, V_DIM, V_WIDE)
    d = tl.arange(0, V_WIDE)
    mask = there[:, None] & (d < V_DIM)[None, :]
    if GATED:
        at = row.to(tl.int64) * gate_row + head[:, None] * Q_STEP + HEAD_DIM + d[None, :]
        found = found / (1 + tl.exp2(tl.load(gate + at, mask=mask, other=0) * -LOG2E))
    tl.store(out + row.to(tl.int64) * out_row + head[:, None] * V_DIM + d[None, :], found, mask=mask)


@triton.jit(do_not_specialize=["n_rows", "n_splits"])
def _attend_rows(
    q, keys, values, k_scales, v_scales, sinks, gate, positions, seqs, tables, partials, stats, counters, out, n_rows, n_splits,
    scale, softcap, q_row, gate_row, out_row, table_row, k_step, v_step, ks_step, vs_step,
    N_SEQS: tl.constexpr, ROWS: tl.constexpr, KV_HEADS: tl.constexpr, EACH: tl.constexpr, QUERIES: tl.constexpr,
    Q_STEP: tl.constexpr, HEAD_DIM: tl.constexpr, D1: tl.constexpr, D2: tl.constexpr, V_DIM: tl.constexpr,
    V_WIDE: tl.constexpr, BLOCK: tl.constexpr, KEYS: tl.constexpr, LEAST: tl.constexpr,
    WINDOW: tl.constexpr, K_KIND: tl.constexpr, V_KIND: tl.constexpr, K_GROUPS: tl.constexpr, V_GROUPS: tl.constexpr,
    SINKS: tl.constexpr, CAPPED: tl.constexpr, GATED: tl.constexpr, FUSED: tl.constexpr,
    HEADS: tl.constexpr, TOGETHER: tl.constexpr, EARLY: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """One KV head of ROWS rows of one sequence over one part of their past. FUSED: the last part to finish merges them."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
    kv, split, i = tl.program_id(0), tl.program_id(1), tl.arange(0, QUERIES)
    if ROWS == 1:
        row, head, there = tl.program_id(2), kv * EACH + i, i < EACH
        position, seq = tl.load(positions + row), tl.load(seqs + row)
        newest, oldest = position, position
    else:
        seq = tl.program_id(2) % N_SEQS
        row, there, position = rows_of(positions, seqs, tl.program_id(2) // N_SEQS, seq, i // EACH, n_rows, ROWS)
        head, newest = kv * EACH + i % EACH, tl.max(position, 0)
        if newest < 0:
            return
        oldest = tl.min(tl.where(there, position, newest), 0)
    first = tl.maximum(oldest - WINDOW + 1, 0) if WINDOW else 0
    first_block = first // BLOCK
    n_blocks = newest // BLOCK + 1 - first_block
    n_used = splits_used(n_blocks, n_splits, LEAST)
    if split >= n_used:
        return
    table = tables + seq.to(tl.int64) * table_row
    begin = (first_block + n_blocks * split // n_used) * BLOCK
    limit = (first_block + n_blocks * (split + 1) // n_used) * BLOCK
    end = tl.minimum(newest + 1, limit)

    d1 = tl.arange(0, D1)
    from_q = q + (row.to(tl.int64) * q_row + head * Q_STEP)[:, None]
    factor = scale if CAPPED else scale * LOG2E
    q1 = tl.load(from_q + d1[None, :], mask=there[:, None] & (d1 < HEAD_DIM)[None, :], other=0) * factor
    q1 = q1.to(tl.float32 if K_KIND == 0 else tl.float16)
    if D2:
        d2 = D1 + tl.arange(0, D2)
        q2 = tl.load(from_q + d2[None, :], mask=there[:, None] & (d2 < HEAD_DIM)[None, :], other=0) * factor
        q2 = q2.to(q1.dtype)

    largest = tl.full([QUERIES], -1e30, tl.float32)  # finite: a row may see no key of this part
    total = tl.zeros([QUERIES], tl.float32)
    if SINKS and split == 0:
        largest = tl.load(sinks + head, mask=there, other=0) * LOG2E
        total += 1
    sums = tl.zeros([QUERIES, V_WIDE], tl.float32)
    key = begin + tl.arange(0, KEYS)
    next_block = blocks_of(table, key, (key >= first) & (key < end), BLOCK, True)
    for start in range(begin, limit, KEYS):
        key = start + tl.arange(0, KEYS)
        seen = (key >= first) & (key < end)
        # Blocks are looked up one tile ahead: asynchronous copies end in order, so one that waits for its address holds up all.
        block, ahead = next_block, key + KEYS
        next_block = blocks_of(table, ahead, (ahead >= first) & (ahead < end), BLOCK, True)
        at = starts(block, k_step, kv, key, BLOCK, HEAD_DIM)
        scales_at = starts(block, ks_step, kv, key, BLOCK, K_GROUPS)
        k = load_tile(keys, k_scales, at, scales_at, seen, 0, D1, HEAD_DIM, K_KIND, False, ASM)
        scores = tl.dot(q1, tl.trans(k), input_precision="ieee")
        if D2:
            k = load_tile(keys, k_scales, at, scales_at, seen, D1, D2, HEAD_DIM, K_KIND, False, ASM)
            scores = tl.dot(q2, tl.trans(k), scores, input_precision="ieee")
        if K_KIND == INT8:
            scores = scores * tl.load(k_scales + scales_at, mask=seen, other=0).to(tl.float32)[None, :]
        scores = softcapped(scores, softcap, CAPPED)
        visible = seen[None, :]
        if ROWS > 1:
            visible = visible & (key[None, :] <= position[:, None])
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
    place = row * (KV_HEADS * EACH) + head
    keep(partials, stats, place, there, split, sums, largest, total, n_splits, V_DIM, V_WIDE)
    if FUSED:
        tl.debug_barrier()  # everything this program stored comes before its count
        counter = counters + row * KV_HEADS + kv
        if tl.atomic_add(counter, 1, sem="acq_rel") == n_used - 1:
            tl.store(counter, 0)
            e = tl.arange(0, HEADS)
            _finish(
                partials, stats, gate, out, row, kv * EACH + e, e < EACH, n_used, n_splits, gate_row, out_row, KV_HEADS * EACH,
                Q_STEP, HEAD_DIM, V_DIM, V_WIDE, TOGETHER, GATED,
            )  # fmt: skip


@triton.jit(do_not_specialize=["n_rows", "n_splits"])
def _merge(
    partials, stats, gate, out, positions, seqs, n_rows, n_splits, gate_row, out_row,
    ROWS: tl.constexpr, N_HEADS: tl.constexpr, Q_STEP: tl.constexpr, HEAD_DIM: tl.constexpr, V_DIM: tl.constexpr,
    V_WIDE: tl.constexpr, BLOCK: tl.constexpr, LEAST: tl.constexpr, WINDOW: tl.constexpr,
    GATED: tl.constexpr, TOGETHER: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """The splits of one head of one row become its output, where that is a launch of its own; they are those of its tile."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
    head, row = tl.program_id(0) + tl.arange(0, 1), tl.program_id(1)
    _, mine, position = rows_of(positions, seqs, row // ROWS, tl.load(seqs + row), tl.arange(0, ROWS), n_rows, ROWS)
    newest = tl.max(position, 0)
    oldest = tl.min(tl.where(mine, position, newest), 0)
    first = tl.maximum(oldest - WINDOW + 1, 0) if WINDOW else 0
    n_used = splits_used(newest // BLOCK + 1 - first // BLOCK, n_splits, LEAST)
    _finish(
        partials, stats, gate, out, row, head, head < N_HEADS, n_used, n_splits, gate_row, out_row, N_HEADS, Q_STEP, HEAD_DIM,
        V_DIM, V_WIDE, TOGETHER, GATED,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """keys: at a time; least: blocks of a split; programs: wanted a multiprocessor; fused: merged by the last split.

    early: launched before the launch before it has ended, whose end it waits for (compute capability 9 and later).
    """

    keys: int = 64
    warps: int = 4
    stages: int = 3
    least: int = 2
    programs: float = 2.0
    fused: bool = True
    early: bool = False


MAX_SPLITS = 128


def attend_rows(
    workspace: Workspace,
    multiprocessors: int,
    config: DecodeConfig,
    pages: Pages,
    q: Tensor,
    heads: Heads,
    sinks: Tensor | None,
    gate: Tensor | None,
    out: Tensor,
    *,
    queries: int = 1,
) -> None:
    """Attention of rows that are each of another sequence, or of chunks: then a tile has `queries` queries of a KV head, or more.

    See `engine.triton_kernels.kernels.Kernels.attend`.
    """
    cache, step, n_rows = pages.cache, pages.step, len(q)
    assert cache.values is not None
    each, table, (d1, d2), v_wide = heads.n_heads // heads.n_kv_heads, pages.table, cut(heads.head_dim), padded(heads.v_dim)
    rows = 1 if queries == 1 else max(2, queries // padded(each, 1))
    n_tiles, n_seqs = (n_rows, 1) if rows == 1 else (-(-n_rows // rows), table.shape[0])
    reach = table.shape[1] if heads.window is None else min(table.shape[1], (heads.window + rows) // pages.block + 2)
    # In decode the number of rows must not matter to a row; tiles of a chunk fill the device together.
    together_there = heads.n_kv_heads * (1 if rows == 1 else n_tiles)
    wanted = round(config.programs * multiprocessors / together_there)
    splits = max(1, min(MAX_SPLITS, wanted, -(-reach // config.least)))
    fused, group = config.fused and rows == 1, padded(each, 1)
    partials = workspace.of("partials", (n_rows, heads.n_heads, splits, heads.v_dim))
    stats = workspace.of("stats", (n_rows, heads.n_heads, splits, 2))
    counters = workspace.zeros("counters", n_rows * heads.n_kv_heads)
    k_scales, v_scales = cache.k_scales, cache.v_scales
    gate_row = 0 if gate is None else gate.stride(0)
    _attend_rows[heads.n_kv_heads, splits, n_tiles * n_seqs](
        q, cache.keys, cache.values, k_scales, v_scales, sinks, gate, step.positions, step.seq_of_row, table, partials,
        stats, counters, out, n_rows, splits, heads.scale, heads.softcap, q.stride(0), gate_row, out.stride(0), table.stride(0),
        cache.keys.stride(0), cache.values.stride(0), 0 if k_scales is None else k_scales.stride(0),
        0 if v_scales is None else v_scales.stride(0),
        N_SEQS=n_seqs, ROWS=rows, KV_HEADS=heads.n_kv_heads, EACH=each, QUERIES=padded(rows * each), Q_STEP=heads.q_step,
        HEAD_DIM=heads.head_dim, D1=d1, D2=d2, V_DIM=heads.v_dim, V_WIDE=v_wide, BLOCK=pages.block, KEYS=config.keys,
        LEAST=config.least, WINDOW=heads.window or 0, K_KIND=kind_of(cache.keys, k_scales),
        V_KIND=kind_of(cache.values, v_scales), K_GROUPS=0 if k_scales is None else k_scales.shape[-1],
        V_GROUPS=0 if v_scales is None else v_scales.shape[-1], SINKS=sinks is not None, CAPPED=heads.softcap != 0,
        GATED=gate is not None, FUSED=fused, HEADS=group, TOGETHER=together(group, v_wide),
        EARLY=config.early, launch_pdl=config.early,
        ASM=pages.asm, num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    if fused:
        return
    _merge[heads.n_heads, n_rows](
        partials, stats, gate, out, step.positions, step.seq_of_row, n_rows, splits, gate_row, out.stride(0),
        ROWS=rows, N_HEADS=heads.n_heads, Q_STEP=heads.q_step, HEAD_DIM=heads.head_dim, V_DIM=heads.v_dim, V_WIDE=v_wide,
        BLOCK=pages.block, LEAST=config.least, WINDOW=heads.window or 0, GATED=gate is not None,
        TOGETHER=together(1, v_wide), EARLY=config.early, launch_pdl=config.early,
        num_warps=4,
    )  # fmt: skip
