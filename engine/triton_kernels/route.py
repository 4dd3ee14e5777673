# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""The choice of experts, see `engine.arch.spec.Routing`: for few rows in the launch that computes the router's scores."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.arch.spec import Routing
from engine.triton_kernels.activations import sigmoid
from engine.triton_kernels.gemv import Tile, few_rows, launched, weights_of
from engine.triton_kernels.products import partial_products
from engine.triton_kernels.tensors import Acts, Choice, Matrix, Pooled, Tally

_NO_ID = tl.constexpr(1 << 30)
_LEAST = tl.constexpr(-(1 << 63))
_MIN_WEIGHT = tl.constexpr(2.0**-14)  # the least sum that weights are divided by


@triton.jit
def _largest(x):
    """The largest of each [G, E] of x [ROWS, G, E]: [ROWS, 1, 1]."""
    return tl.max(tl.max(x, 2), 1)[:, None, None]


@triton.jit
def _total(x):
    return tl.sum(tl.sum(x, 2), 1)[:, None, None]


@triton.jit
def keys_of(score, ids):
    """int64 that order by score, and of equal scores the lower id first: the number's bits above those of the id."""
    bits = (score + 0.0).to(tl.int32, bitcast=True)  # which makes one zero of both
    ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (ordered.to(tl.int64) << 32) | (-ids + _NO_ID).to(tl.int64)


@triton.jit
def _score_of(key):
    """The score that made a key."""
    ordered = (key >> 32).to(tl.int32)
    return tl.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered).to(tl.float32, bitcast=True)


@triton.jit
def likely(logits, top, total, GATING: tl.constexpr):
    """What scores say of each expert; of scores of a row whose largest is `top`, and whose exponentials add up to `total`."""
    if GATING == "softmax":
        return tl.exp(logits - top) / total
    elif GATING == "sigmoid":
        return sigmoid(logits)
    else:
        return logits


@triton.jit
def _best_groups(score, real, g, e, GROUPS_USED: tl.constexpr):
    """Whether each group [ROWS, G, 1] is among those whose two best experts add up to most."""
    first = tl.max(score, 2)[:, :, None]
    at = tl.min(tl.where(score == first, e, _NO_ID), 2)[:, :, None]
    second = tl.max(tl.where((e == at) | (real == 0), float("-inf"), score), 2)[:, :, None]
    total = first + tl.where(second == float("-inf"), 0.0, second)
    kept = total != total
    for _ in tl.static_range(GROUPS_USED):
        open = tl.where(kept, float("-inf"), total)
        best = tl.max(open, 1)[:, None, :]
        kept = kept | (g == tl.min(tl.where((open == best) & (kept == 0), g, _NO_ID), 1)[:, None, :])
    return kept


@triton.jit
def _choose(
    scores, pick_bias, chosen, weights, ids_out, counts, slot_of, here, there, row, n_rows, scores_step,
    N_EXPERTS: tl.constexpr, N_USED: tl.constexpr, N_GROUPS: tl.constexpr, GROUPS_USED: tl.constexpr, GATING: tl.constexpr,
    NORM: tl.constexpr, SCALE: tl.constexpr, PICK: tl.constexpr, IDS: tl.constexpr, COUNTS: tl.constexpr, POOL: tl.constexpr,
    G: tl.constexpr, E: tl.constexpr, U: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Ids and weights of ROWS rows from `row` on. G, E, U: powers of two for groups, experts of one, and experts used.

    IDS, COUNTS: ids go to ids_out too, or every choice adds 1 to counts. POOL: `here` and `there` are told, see `Pooled`.
    """
    SIZE: tl.constexpr = N_EXPERTS // N_GROUPS
    GATHERED: tl.constexpr = PICK or N_GROUPS > 1  # weights are not what experts are chosen by
    m, g, e = tl.arange(0, ROWS)[:, None, None], tl.arange(0, G)[None, :, None], tl.arange(0, E)[None, None, :]
    inside = row + m < n_rows
    m = tl.minimum(row + m, n_rows - 1)
    ids, real = g * SIZE + e, (g < N_GROUPS) & (e < SIZE)
    logits = tl.load(scores + m * scores_step + ids, mask=real, other=float("-inf"), cache_modifier=".cg")
    top, total = _largest(logits), tl.full([ROWS, 1, 1], 1.0, tl.float32)
    if GATING == "softmax":
        total = _total(tl.exp(logits - top))
    score = likely(logits, top, total, GATING)
    if PICK:
        score = score + tl.load(pick_bias + ids, mask=real, other=0.0)
    score = tl.where(real, score, float("-inf"))
    if N_GROUPS > 1:
        score = tl.where(_best_groups(score, real, g, e, GROUPS_USED), score, float("-inf"))
    u = tl.arange(0, U)[None, None, :]
    keys = tl.where(real, keys_of(score, ids), _LEAST)
    picked = tl.zeros([ROWS, 1, U], tl.int32)
    weight = tl.zeros([ROWS, 1, U], tl.float32)
    for j in tl.static_range(N_USED):
        best = _largest(keys)
        keys = tl.where(keys == best, _LEAST, keys)
        picked = tl.where(u == j, -(best & 0x7FFFFFFF).to(tl.int32) + _NO_ID, picked)
        if not GATHERED:
            weight = tl.where(u == j, _score_of(best), weight)
    used = u < N_USED
    if GATHERED:
        weight = likely(tl.load(scores + m * scores_step + picked, cache_modifier=".cg"), top, total, GATING)
    if GATING == "softmax_chosen":
        weight = tl.where(used, weight, float("-inf"))
        weight = tl.exp(weight - tl.max(weight, 2)[:, :, None])
        weight = weight / tl.sum(weight, 2)[:, :, None]
    if NORM:
        weight = weight / tl.maximum(tl.sum(tl.where(used, weight, 0.0), 2)[:, :, None], _MIN_WEIGHT)
    tl.store(chosen + m * N_USED + u, picked, mask=used)
    tl.store(weights + m * N_USED + u, weight * SCALE, mask=used)
    if IDS:
        tl.store(ids_out + m * N_USED + u, picked, mask=used)
    if COUNTS:
        tl.atomic_add(counts + picked, 1, mask=used & inside, sem="relaxed")
    if POOL:
        slot = tl.load(slot_of + picked, mask=used, other=-1)
        tl.store(here + m * N_USED + u, slot, mask=used)
        tl.store(there + m * N_USED + u, tl.where(slot < 0, picked, -1), mask=used)


@triton.jit
def _route_few(
    V, X, S, T, n_rows, W, B, arrivals, scores, pick_bias, chosen, weights, ids_out, counts, slot_of, here, there, scores_step,
    FORMAT: tl.constexpr, RB: tl.constexpr, BIAS: tl.constexpr, F32: tl.constexpr,
    K: tl.constexpr, M: tl.constexpr, R: tl.constexpr, H: tl.constexpr, ASM: tl.constexpr, EARLY: tl.constexpr,
    N_EXPERTS: tl.constexpr, N_USED: tl.constexpr, N_GROUPS: tl.constexpr, GROUPS_USED: tl.constexpr, GATING: tl.constexpr,
    NORM: tl.constexpr, SCALE: tl.constexpr, PICK: tl.constexpr, IDS: tl.constexpr, COUNTS: tl.constexpr, POOL: tl.constexpr,
    G: tl.constexpr, E: tl.constexpr, U: tl.constexpr,
):  # fmt: skip
    """Scores of R experts a program; whichever program comes last chooses, and leaves the count of arrivals at 0."""
    first = tl.program_id(0) * R
    last = tl.minimum(N_EXPERTS - first, R) - 1
    acc = partial_products(
        W, first.to(tl.int64) * RB, last, V, X, S, T, 0, n_rows, FORMAT, F32, K, RB, M, R, H, False, ASM, EARLY
    )
    y = tl.sum(acc, 2)
    r, m = tl.arange(0, R)[None, :], tl.arange(0, M)[:, None]
    if BIAS:
        y += tl.load(B + first + tl.minimum(r, last))
    tl.store(scores + m * scores_step + first + r, y, mask=(r <= last) & (m < n_rows))
    tl.debug_barrier()  # all threads' scores lie before the one that counts
    if tl.atomic_add(arrivals, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        tl.store(arrivals, 0)
        _choose(
            scores, pick_bias, chosen, weights, ids_out, counts, slot_of, here, there, 0, n_rows, scores_step,
            N_EXPERTS, N_USED, N_GROUPS, GROUPS_USED, GATING, NORM, SCALE, PICK, IDS, COUNTS, POOL, G, E, U, M,
        )  # fmt: skip


@triton.jit
def _choose_rows(
    scores, pick_bias, chosen, weights, ids_out, counts, slot_of, here, there, n_rows, scores_step,
    N_EXPERTS: tl.constexpr, N_USED: tl.constexpr, N_GROUPS: tl.constexpr, GROUPS_USED: tl.constexpr, GATING: tl.constexpr,
    NORM: tl.constexpr, SCALE: tl.constexpr, PICK: tl.constexpr, IDS: tl.constexpr, COUNTS: tl.constexpr, POOL: tl.constexpr,
    G: tl.constexpr, E: tl.constexpr, U: tl.constexpr,
):  # fmt: skip
    _choose(
        scores, pick_bias, chosen, weights, ids_out, counts, slot_of, here, there, tl.program_id(0), n_rows, scores_step,
        N_EXPERTS, N_USED, N_GROUPS, GROUPS_USED, GATING, NORM, SCALE, PICK, IDS, COUNTS, POOL, G, E, U, 1,
    )  # fmt: skip


def noted(choice: Choice, tally: Tally | None, pool: Pooled | None) -> tuple[Tensor, ...]:
    """Where else the choice goes: ids, counts, slots and both sides of a pool; for what is not there, something not touched."""
    tally, none = tally or Tally(None, None), choice.chosen
    ids, counts = (none if tensor is None else tensor for tensor in (tally.ids, tally.counts))
    return (ids, counts, none, none, none) if pool is None else (ids, counts, pool.slot_of, pool.here, pool.there)


def _constants(
    routing: Routing, n_experts: int, n_used: int, pick_bias: Tensor | None, tally: Tally | None, pool: Pooled | None
) -> dict[str, object]:
    return {
        "N_EXPERTS": n_experts,
        "N_USED": n_used,
        "N_GROUPS": routing.n_groups,
        "GROUPS_USED": routing.n_groups_used,
        "GATING": routing.gating,
        "NORM": routing.norm_weights,
        "SCALE": routing.scale,
        "PICK": pick_bias is not None,
        "IDS": tally is not None and tally.ids is not None,
        "COUNTS": tally is not None and tally.counts is not None,
        "POOL": pool is not None,
        "G": triton.next_power_of_2(routing.n_groups),
        "E": triton.next_power_of_2(n_experts // routing.n_groups),
        "U": triton.next_power_of_2(n_used),
    }


def route_few(
    acts: Acts,
    router: Matrix,
    bias: Tensor | None,
    pick_bias: Tensor | None,
    scores: Tensor,
    choice: Choice,
    routing: Routing,
    arrivals: Tensor,
    tally: Tally | None = None,
    pool: Pooled | None = None,
    *,
    asm: bool,
    early: bool = False,
    tile: Tile | None = None,
) -> None:
    """See `engine.triton_kernels.kernels.Kernels.route`. arrivals: int32 [1], 0."""
    n_rows, n_experts = scores.shape
    tile = tile or Tile(1, 128, 1)
    _route_few[(triton.cdiv(n_experts, tile.rows),)](
        *few_rows(acts), n_rows, weights_of(router), scores if bias is None else bias, arrivals, scores,
        scores if pick_bias is None else pick_bias, choice.chosen, choice.weights, *noted(choice, tally, pool), scores.stride(0),
        FORMAT=router.format, RB=router.row_bytes, BIAS=bias is not None, F32=acts.codes is None, K=router.n_in,
        M=triton.next_power_of_2(n_rows), R=tile.rows, H=tile.pairs, ASM=asm, EARLY=early,
        **_constants(routing, n_experts, choice.chosen.shape[1], pick_bias, tally, pool), **launched(early), num_warps=tile.warps,
    )  # fmt: skip


def choose_rows(
    scores: Tensor,
    pick_bias: Tensor | None,
    choice: Choice,
    routing: Routing,
    tally: Tally | None = None,
    pool: Pooled | None = None,
) -> None:
    """The choice from scores [n_rows, n_experts], a program a row."""
    n_rows, n_experts = scores.shape
    _choose_rows[(n_rows,)](
        scores, scores if pick_bias is None else pick_bias, choice.chosen, choice.weights, *noted(choice, tally, pool), n_rows,
        scores.stride(0), **_constants(routing, n_experts, choice.chosen.shape[1], pick_bias, tally, pool), num_warps=1,
    )  # fmt: skip
