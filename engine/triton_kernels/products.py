# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""Rows of a matrix times a few rows of activations, inside a Triton program: what linears and experts of few rows are made of.

Everything has four axes, [rows of activations, rows of the matrix, pairs, words]: a tile of weights is loaded and unpacked once,
in the layout in which it is multiplied, and serves all rows of activations without being moved between threads.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.triton_kernels.blocks import first_run, load_pairs
from engine.triton_kernels.words import byte, dot4


@triton.jit
def awaited(EARLY: tl.constexpr):
    """Waits for the launch before this one, where this began before that had ended.

    EARLY 2: what comes behind this may be launched from now on. It waits as well before it reads what this one makes, and what
    those before this one made is complete, since this has waited.
    """
    if EARLY:
        tl.extra.cuda.gdc_wait()
    if EARLY == 2:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def _axes(R: tl.constexpr, H: tl.constexpr, M: tl.constexpr, last, n_rows, EVEN: tl.constexpr):
    r = tl.arange(0, R)[None, :, None, None]
    m = tl.arange(0, M)[:, None, None, None]
    if not EVEN:
        r, m = tl.minimum(r, last), tl.minimum(m, n_rows - 1)
    return r, tl.arange(0, H)[None, None, :, None], tl.arange(0, 4)[None, None, None, :], m


@triton.jit
def _more(
    acc, lo, hi, x, y, u, v, less,
    WHOLE: tl.constexpr, SPAN: tl.constexpr, HAS_MIN: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """acc plus products of codes with codes, times their scales u and v, and without what minima take off."""
    if WHOLE:
        acc += u * tl.sum(dot4(lo, x, ASM), 3).to(tl.float32)
        acc += v * tl.sum(dot4(hi, y, ASM), 3).to(tl.float32)
    elif SPAN == 1:
        acc += u[:, :, :, None] * (dot4(lo, x, ASM) + dot4(hi, y, ASM)).to(tl.float32)
    else:
        acc += u[:, :, :, None] * dot4(lo, x, ASM).to(tl.float32)
        acc += v[:, :, :, None] * dot4(hi, y, ASM).to(tl.float32)
    if HAS_MIN and WHOLE:
        acc -= less
    elif HAS_MIN:
        acc -= 0.25 * less[:, :, :, None]  # each of the four threads that hold a run takes a quarter
    return acc


@triton.jit
def _of_codes(
    W, origin, V, origin_of_v, last, X, S, T, n_rows, TWO: tl.constexpr,
    FORMAT: tl.constexpr, SPAN: tl.constexpr, VECTOR: tl.constexpr, HAS_MIN: tl.constexpr, STEP: tl.constexpr,
    K: tl.constexpr, RB: tl.constexpr, M: tl.constexpr, R: tl.constexpr, H: tl.constexpr, EVEN: tl.constexpr, ASM: tl.constexpr,
    EARLY: tl.constexpr = 0,
):  # fmt: skip
    """Products with 8-bit activations: X int32 words [.., K / 4], S scales [.., K / 32], T sums [.., K / 16].

    TWO: of a second matrix V as well, whose weights are under way at the same time; without, the second result is the first.

    Where a thread holds the four words of a run (VECTOR 4), it adds their products as integers and scales the sum; else threads
    hold words, and each scales its own.
    """
    PAIRS: tl.constexpr = K // 32
    WHOLE: tl.constexpr = VECTOR == 4
    r, h, i, m = _axes(R, H, M, last, n_rows, EVEN)
    rh, hh, mh = tl.arange(0, R)[None, :, None], tl.arange(0, H)[None, None, :], tl.arange(0, M)[:, None, None]
    if not EVEN:
        rh, mh = tl.minimum(rh, last), tl.minimum(mh, n_rows - 1)
    acc = tl.zeros([M, R, H] if WHOLE else [M, R, H, 4], tl.float32)
    other_acc = acc
    STEPS: tl.constexpr = (PAIRS + H - 1) // H
    # Steps that are unrolled, as far as they divide all: loads of several are under way at once, as far as registers go.
    MOST: tl.constexpr = 8 // M if WHOLE else 2 if M == 1 else 1
    UNROLLED: tl.constexpr = (
        STEPS if STEPS <= MOST else MOST if STEPS % MOST == 0 else MOST // 2 if MOST > 1 and STEPS % (MOST // 2) == 0 else 1
    )
    if STEPS > MOST:
        awaited(EARLY)
    for begun in range(0, STEPS, UNROLLED):
        weights, weights_of_v = origin + begun * STEP, origin_of_v + begun * STEP
        x_of, s_of, t_of = X + begun * (H * 8), S + begun * H, T + begun * (H * 2)
        for step in tl.static_range(UNROLLED):
            p, ph = h, hh
            left = PAIRS - (begun + step) * H
            inside = hh < left
            if PAIRS % H != 0:
                p, ph = tl.minimum(h, left - 1), tl.minimum(hh, left - 1)
            lo, hi, dl, dh, ml, m2 = load_pairs(W, weights, r, p, i, rh, ph, FORMAT, RB, step * STEP, WHOLE, ASM)
            if TWO:
                lo_v, hi_v, dl_v, dh_v, ml_v, m2_v = load_pairs(
                    V, weights_of_v, r, p, i, rh, ph, FORMAT, RB, step * STEP, WHOLE, ASM
                )
            if step == 0 and STEPS <= MOST:
                awaited(EARLY)  # weights are under way already
            # In the layout of the weights, whatever wider loads the alignment of activations would allow.
            at = tl.max_contiguous(m * (K // 4) + first_run(p, SPAN) * 4 + i, (1, 1, 1, VECTOR))
            x, y = tl.load(x_of + at + step * H * 8), tl.load(x_of + at + (step * H * 8 + SPAN * 4))
            run = first_run(ph, SPAN)
            scale = tl.load(s_of + (mh * (K // 32) + run // 2) + step * H, mask=inside, other=0.0)
            other = scale
            if SPAN > 1:
                other = tl.load(s_of + (mh * (K // 32) + run // 2) + (step * H + SPAN // 2), mask=inside, other=0.0)
            first, second = scale, other
            if HAS_MIN:
                sums = t_of + (mh * (K // 16) + run) + step * H * 2
                first, second = tl.load(sums, mask=inside, other=0.0), tl.load(sums + SPAN, mask=inside, other=0.0)
            less = ml * first + m2 * second
            acc = _more(acc, lo, hi, x, y, dl * scale, dh * other, less, WHOLE, SPAN, HAS_MIN, ASM)
            if TWO:
                less = ml_v * first + m2_v * second
                u, v = dl_v * scale, dh_v * other
                other_acc = _more(other_acc, lo_v, hi_v, x, y, u, v, less, WHOLE, SPAN, HAS_MIN, ASM)
    if WHOLE:
        return acc, other_acc
    else:
        return tl.reshape(acc, (M, R, H * 4)), tl.reshape(other_acc, (M, R, H * 4))


@triton.jit
def _of_f32(
    W, origin, last, X, n_rows,
    FORMAT: tl.constexpr, SPAN: tl.constexpr, HAS_MIN: tl.constexpr,
    K: tl.constexpr, RB: tl.constexpr, M: tl.constexpr, R: tl.constexpr, H: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """[M, R] f32: products with f32 activations X [.., K]."""
    PAIRS: tl.constexpr = K // 32
    r, h, i, m = _axes(R, H, M, last, n_rows, False)
    acc = tl.zeros([M, R, H, 4], tl.float32)
    for step in range((PAIRS + H - 1) // H):
        p, inside = tl.minimum(step * H + h, PAIRS - 1), step * H + h < PAIRS
        lo, hi, dl, dh, ml, mh = load_pairs(W, origin, r, p, i, r, p, FORMAT, RB, 0, False, ASM)
        at = X + m * K + first_run(p, SPAN) * 16 + 4 * i
        for k in tl.static_range(4):
            x, y = tl.load(at + k, mask=inside, other=0.0), tl.load(at + SPAN * 16 + k, mask=inside, other=0.0)
            u, v = dl * byte(lo, k).to(tl.float32), dh * byte(hi, k).to(tl.float32)
            if HAS_MIN:
                u, v = u - ml, v - mh
            acc += u * x + v * y
    return tl.reshape(acc, (M, R, H * 4))


@triton.jit
def float_pointer(W, origin, FORMAT: tl.constexpr):
    """A pointer to numbers of a float format."""
    if FORMAT == "F32":
        return (W + origin).to(tl.pointer_type(tl.float32))
    elif FORMAT == "F16":
        return (W + origin).to(tl.pointer_type(tl.float16))
    else:
        return (W + origin).to(tl.pointer_type(tl.bfloat16))


@triton.jit
def _of_floats(
    W, origin, last, X, n_rows,
    FORMAT: tl.constexpr, K: tl.constexpr, RB: tl.constexpr, M: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """[M, R] f32: products of plain numbers with f32 activations X [.., K], C columns at a time."""
    STRIDE: tl.constexpr = RB // 4 if FORMAT == "F32" else RB // 2
    r = tl.minimum(tl.arange(0, R), last)[None, :, None]
    m = tl.minimum(tl.arange(0, M), n_rows - 1)[:, None, None]
    weights = float_pointer(W, origin, FORMAT)
    acc = tl.zeros([M, R, C], tl.float32)
    for step in tl.static_range((K + C - 1) // C):
        k = step * C + tl.arange(0, C)[None, None, :]
        w = tl.load(weights + r * STRIDE + k, mask=k < K, other=0.0).to(tl.float32)
        if step == 0:
            awaited(EARLY)
        acc += w * tl.load(X + m * K + k, mask=k < K, other=0.0)
    return acc


@triton.jit
def partial_products(
    W, origin, last, V, X, S, T, x_row, n_rows,
    FORMAT: tl.constexpr, F32: tl.constexpr, K: tl.constexpr, RB: tl.constexpr,
    M: tl.constexpr, R: tl.constexpr, H: tl.constexpr, EVEN: tl.constexpr, ASM: tl.constexpr, EARLY: tl.constexpr = 0,
):  # fmt: skip
    """[M, R, n] f32, to be summed over n: rows `origin` (int64, bytes) on of a matrix times rows x_row on of the activations.

    Row r of the tile beyond `last` is row `last`, row m beyond n_rows the last; EVEN: there are none. H: pairs at a time, a
    multiple of 8. V: f32 activations, for float formats and where F32; X, S, T: 8-bit ones. EARLY: the program was launched
    before its activations are complete, which are waited for when weights are under way; 2: see `awaited`.
    """
    first, _ = partial_products_of_two(
        W, origin, W, origin, last, V, X, S, T, x_row, n_rows, FORMAT, F32, K, RB, M, R, H, EVEN, ASM, EARLY, False
    )
    return first


@triton.jit
def partial_products_of_two(
    W, origin, W_2, origin_2, last, V, X, S, T, x_row, n_rows,
    FORMAT: tl.constexpr, F32: tl.constexpr, K: tl.constexpr, RB: tl.constexpr,
    M: tl.constexpr, R: tl.constexpr, H: tl.constexpr, EVEN: tl.constexpr, ASM: tl.constexpr, EARLY: tl.constexpr = 0,
    TWO: tl.constexpr = True,
):  # fmt: skip
    """The same of two matrices of one format, whose weights are under way at the same time. TWO: for `partial_products`."""
    SIX: tl.constexpr = FORMAT == "Q6_K" or FORMAT == "Q6_K_PADDED"
    SPAN: tl.constexpr = 4 if SIX else 2 if FORMAT == "Q4_K" or FORMAT == "Q5_K" or FORMAT == "Q2_K" or FORMAT == "Q3_K" else 1
    WIDE: tl.constexpr = FORMAT == "Q4_K" or FORMAT == "Q5_K" or FORMAT == "Q6_K_PADDED"
    VECTOR: tl.constexpr = 4 if WIDE else 2 if FORMAT == "Q5_1" or FORMAT == "IQ4_XS" else 1
    HAS_MIN: tl.constexpr = FORMAT == "Q4_K" or FORMAT == "Q5_K" or FORMAT == "Q2_K" or FORMAT == "Q4_1" or FORMAT == "Q5_1"
    FLOATS: tl.constexpr = FORMAT == "F32" or FORMAT == "F16" or FORMAT == "BF16"
    if FLOATS:
        first = _of_floats(W, origin, last, V + x_row * K, n_rows, FORMAT, K, RB, M, R, H * 4, EARLY)
        second = first
        if TWO:
            second = _of_floats(W_2, origin_2, last, V + x_row * K, n_rows, FORMAT, K, RB, M, R, H * 4, 0)
    elif F32:
        awaited(EARLY)
        first = _of_f32(W, origin, last, V + x_row * K, n_rows, FORMAT, SPAN, HAS_MIN, K, RB, M, R, H, ASM)
        second = first
        if TWO:
            second = _of_f32(W_2, origin_2, last, V + x_row * K, n_rows, FORMAT, SPAN, HAS_MIN, K, RB, M, R, H, ASM)
    else:
        first, second = _of_codes(
            W, origin, W_2, origin_2, last, X + x_row * (K // 4), S + x_row * (K // 32), T + x_row * (K // 16), n_rows, TWO,
            FORMAT, SPAN, VECTOR, HAS_MIN, RB * 32 * H // K, K, RB, M, R, H, EVEN, ASM, EARLY,
        )  # fmt: skip
    return first, second
