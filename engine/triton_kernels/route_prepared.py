# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""The rows that a router and its experts read, and its choice, in one launch for few rows: norm, 8-bit codes, scores, experts.

Programs that compute scores norm the rows for themselves, so that nothing waits for the codes; one more program a row makes
those. Whichever program of the scores comes last chooses, by rank: every expert counts those that are better.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.arch.spec import Routing
from engine.triton_kernels.formats import BLOCKS
from engine.triton_kernels.gemv import launched, weights_of
from engine.triton_kernels.products import float_pointer
from engine.triton_kernels.quantise import store_acts
from engine.triton_kernels.route import _MIN_WEIGHT, keys_of, likely, noted
from engine.triton_kernels.tensors import HALVED, Acts, Choice, Matrix, NormWeight, Pooled, Tally

MOST_EXPERTS = 256
"""So many are ranked by comparing each with each; more are picked one after another, see `route`."""


@triton.jit
def _row(x, x_step, row, w, inside, j, eps, K: tl.constexpr, NORM: tl.constexpr):
    """A row, normed as `quantise` does it."""
    y = tl.load(x + row * x_step + j, mask=inside, other=0.0)
    if NORM:
        y = y * (1.0 / tl.sqrt_rn(tl.sum(y * y, 0) / K + eps)) * w
    return y


@triton.jit
def _choose_ranked(
    scores, pick_bias, chosen, weights, ids_out, counts, slot_of, here, there, row, scores_step,
    N_EXPERTS: tl.constexpr, N_USED: tl.constexpr, GATING: tl.constexpr, NORM: tl.constexpr, SCALE: tl.constexpr,
    PICK: tl.constexpr, IDS: tl.constexpr, COUNTS: tl.constexpr, POOL: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    """Ids and weights of one row; see `engine.triton_kernels.route`."""
    e = tl.arange(0, E)
    real = e < N_EXPERTS
    logits = tl.load(scores + row * scores_step + e, mask=real, other=float("-inf"), cache_modifier=".cg")
    top, total = tl.max(logits, 0), 1.0
    if GATING == "softmax":
        total = tl.sum(tl.exp(logits - top), 0)
    weight = likely(logits, top, total, GATING)
    score = weight
    if PICK:
        score = score + tl.load(pick_bias + e, mask=real, other=0.0)
    key = tl.where(real, keys_of(score, e), -(1 << 63))
    rank = tl.sum((key[None, :] > key[:, None]).to(tl.int32), 1)
    used = real & (rank < N_USED)
    if GATING == "softmax_chosen":
        picked = tl.where(used, weight, float("-inf"))
        picked = tl.exp(picked - tl.max(picked, 0))
        weight = picked / tl.sum(picked, 0)
    if NORM:
        weight = weight / tl.maximum(tl.sum(tl.where(used, weight, 0.0), 0), _MIN_WEIGHT)
    at = row * N_USED + rank
    tl.store(chosen + at, e, mask=used)
    tl.store(weights + at, weight * SCALE, mask=used)
    if IDS:
        tl.store(ids_out + at, e, mask=used)
    if COUNTS:
        tl.atomic_add(counts + e, 1, mask=used, sem="relaxed")
    if POOL:
        slot = tl.load(slot_of + e, mask=used, other=-1)
        tl.store(here + at, slot, mask=used)
        tl.store(there + at, tl.where(slot < 0, e, -1), mask=used)


@triton.jit
def _prepare_route(
    x, weight, W, B, arrivals, scores, pick_bias, chosen, weights, ids_out, counts, slot_of, here, there,
    values, codes, scales, sums, n_rows, x_step, scores_step, eps,
    FORMAT: tl.constexpr, RB: tl.constexpr, BIAS: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr, R: tl.constexpr,
    NORMED: tl.constexpr, VALUES: tl.constexpr, CODES: tl.constexpr, HALVED: tl.constexpr,
    N_EXPERTS: tl.constexpr, N_USED: tl.constexpr, GATING: tl.constexpr, NORM: tl.constexpr, SCALE: tl.constexpr,
    PICK: tl.constexpr, IDS: tl.constexpr, COUNTS: tl.constexpr, POOL: tl.constexpr, E: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """R experts' scores of all rows a program, or, in the last programs, one row."""
    N_SCORES: tl.constexpr = (N_EXPERTS + R - 1) // R
    STRIDE: tl.constexpr = RB // 4 if FORMAT == "F32" else RB // 2
    pid, j = tl.program_id(0), tl.arange(0, BLOCK)
    inside = j < K
    norm = j.to(tl.float32)
    if NORMED:
        norm = tl.load(weight + j, mask=inside, other=0.0)
    if pid < N_SCORES:
        first = pid * R
        r = tl.arange(0, R)
        last = tl.minimum(N_EXPERTS - first, R) - 1
        at = float_pointer(W, first.to(tl.int64) * RB, FORMAT) + tl.minimum(r, last)[:, None] * STRIDE + j[None, :]
        w = tl.load(at, mask=inside[None, :], other=0.0).to(tl.float32)
        if EARLY:
            tl.extra.cuda.gdc_wait()
            tl.extra.cuda.gdc_launch_dependents()
        for row in range(0, n_rows):
            y = _row(x, x_step, row, norm, inside, j, eps, K, NORMED)
            score = tl.sum(w * y[None, :], 1)
            if BIAS:
                score += tl.load(B + first + tl.minimum(r, last))
            tl.store(scores + row * scores_step + first + r, score, mask=r <= last)
        tl.debug_barrier()  # all threads' scores lie before the one that counts
        if tl.atomic_add(arrivals, 1, sem="acq_rel") == N_SCORES - 1:
            tl.store(arrivals, 0)
            for row in range(0, n_rows):
                _choose_ranked(
                    scores, pick_bias, chosen, weights, ids_out, counts, slot_of, here, there, row, scores_step,
                    N_EXPERTS, N_USED, GATING, NORM, SCALE, PICK, IDS, COUNTS, POOL, E,
                )  # fmt: skip
    else:
        if EARLY:
            tl.extra.cuda.gdc_wait()
            tl.extra.cuda.gdc_launch_dependents()
        own = pid - N_SCORES
        y = _row(x, x_step, own, norm, inside, j, eps, K, NORMED)
        store_acts(y, values, values, codes, scales, sums, own, 0, K, BLOCK, VALUES, False, CODES, HALVED)


def fits(acts: Acts, router: Matrix, routing: Routing) -> bool:
    """Whether these rows and this router's choice can be made so."""
    plain = BLOCKS[router.format].is_float and routing.n_groups == 1 and router.n_out <= MOST_EXPERTS
    return plain and acts.halves is None and router.n_in % 32 == 0


def prepare_route(
    x: Tensor,
    norm: NormWeight | None,
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
    early: bool = False,
    experts: int = 1,
    warps: int = 4,
) -> None:
    """`prepare` of acts = x, and `route` of it; see `Kernels` for both. experts: whose scores a program computes."""
    (n_rows, n_experts), (_, width) = scores.shape, acts.shape
    given = [x if tensor is None else tensor for tensor in (acts.values, acts.codes, acts.scales, acts.sums)]
    _prepare_route[(triton.cdiv(n_experts, experts) + n_rows,)](
        x, x if norm is None else norm.weight, weights_of(router), scores if bias is None else bias, arrivals, scores,
        scores if pick_bias is None else pick_bias, choice.chosen, choice.weights, *noted(choice, tally, pool),
        *given, n_rows, x.stride(0), scores.stride(0),
        0.0 if norm is None else norm.eps, FORMAT=router.format, RB=router.row_bytes, BIAS=bias is not None, K=width,
        BLOCK=triton.next_power_of_2(width), R=experts, NORMED=norm is not None, VALUES=acts.values is not None,
        CODES=acts.codes is not None, HALVED=HALVED, N_EXPERTS=n_experts, N_USED=choice.chosen.shape[1], GATING=routing.gating,
        NORM=routing.norm_weights, SCALE=routing.scale, PICK=pick_bias is not None,
        IDS=tally is not None and tally.ids is not None, COUNTS=tally is not None and tally.counts is not None,
        POOL=pool is not None, E=triton.next_power_of_2(n_experts),
        EARLY=early, num_warps=warps, **launched(early),
    )  # fmt: skip
