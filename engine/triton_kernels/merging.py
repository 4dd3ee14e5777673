# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""Decode attention is split over keys; here the splits of a head become one: sums by the logarithms of their weights.

Partials: f32 [n_rows, n_heads, n_splits, width] sums of values; stats: [n_rows, n_heads, n_splits, 2], the largest score of a
split, to base 2, and the sum of its weights against that.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def splits_used(n_blocks, n_splits, LEAST: tl.constexpr):
    """How many splits share a row's blocks: at least LEAST blocks each, so that short pasts are not cut to pieces."""
    return tl.minimum(n_splits, tl.cdiv(n_blocks, LEAST))


@triton.jit
def rows_of(positions, seqs, tile, seq, r, n_rows, ROWS: tl.constexpr):
    """(rows, which of them there are, their positions or -1) of a tile; with one row its sequence is its own."""
    row = tile * ROWS + r
    mine = (row < n_rows) & (r < ROWS)
    if ROWS > 1:
        mine = mine & (tl.load(seqs + row, mask=mine, other=-1) == seq)
    return row, mine, tl.load(positions + row, mask=mine, other=-1)


@triton.jit
def keep(
    partials, stats, place, used, split, sums, largest, total, n_splits,
    WIDTH: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Stores what one split found for some heads. place: [heads], row * n_heads + head; used: which of them there are."""
    at, d = place.to(tl.int64) * n_splits + split, tl.arange(0, WIDE)
    tl.store(partials + at[:, None] * WIDTH + d[None, :], sums, mask=used[:, None] & (d < WIDTH)[None, :])
    tl.store(stats + 2 * at, largest, mask=used)
    tl.store(stats + 2 * at + 1, total, mask=used)


@triton.jit
def merged(
    partials, stats, place, there, n_used, begin, n_splits,
    TOGETHER: tl.constexpr, WIDTH: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Values [begin, begin + WIDE) of the heads, of n_used splits. TOGETHER: splits read at a time."""
    d = begin + tl.arange(0, WIDE)
    at = place.to(tl.int64) * n_splits
    largest = tl.full([place.shape[0]], -1e30, tl.float32)
    total = tl.zeros([place.shape[0]], tl.float32)
    sums = tl.zeros([place.shape[0], WIDE], tl.float32)
    for first in range(0, n_used, TOGETHER):
        part = first + tl.arange(0, TOGETHER)
        some = there[:, None] & (part < n_used)[None, :]
        here = at[:, None] + part[None, :]
        # Past L1: another multiprocessor wrote them while this one was running.
        scores = tl.load(stats + 2 * here, mask=some, other=-1e30, cache_modifier=".cg")
        totals = tl.load(stats + 2 * here + 1, mask=some, other=1, cache_modifier=".cg")
        found = tl.load(
            partials + here[:, :, None] * WIDTH + d[None, None, :],
            mask=some[:, :, None] & (d < WIDTH)[None, None, :],
            other=0,
            cache_modifier=".cg",
        )
        higher = tl.maximum(largest, tl.max(scores, 1))
        weight, fade = tl.exp2(scores - higher[:, None]), tl.exp2(largest - higher)
        total = total * fade + tl.sum(totals * weight, 1)
        sums = sums * fade[:, None] + tl.sum(found * weight[:, :, None], 1)
        largest = higher
    return sums / total[:, None]


def together(n_heads: int, wide: int) -> int:
    """Splits that `merged` reads at a time, so that they fit registers."""
    return max(1, min(32, 16384 // (n_heads * wide)))
