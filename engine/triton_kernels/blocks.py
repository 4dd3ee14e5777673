# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""Blocks of quantised weights as Triton kernels read them: pairs of runs of 16 values, which share bytes in most formats.

Pair p of a row are its runs `run` and `run + SPAN`, see `first_run`; a row has n_in / 32 pairs. A function for each format loads
pairs: `lo`, `hi`: int32 words of four signed 8-bit codes, [.., 4] a run; `dl`, `dh`, `ml`, `mh`: f32; a value is d * code - m.
Where the format has no m it is d, and not to be used.

Arguments: W, uint8 pointer to the matrix, 4-byte aligned; origin, int64 bytes from there to the first row of the tile; r, p, i:
row of the tile, pair, and word of a run, int32 tensors that broadcast to [1, R, H, 4]; rh, ph: rows and pairs of the shape that
d and m are wanted in. RB: bytes of a row. SKIP: bytes of whole blocks to go further. Addresses are summed in an order that
leaves rows and SKIP, which are constants, to the loads themselves: with an addition of 64 bits for each load, half of all
instructions would be additions.

Blocks are read as they lie in the file: with 16-byte loads where the format aligns them, else as 16-bit halves of words. Layouts:
`engine.quants.reference` and the GGUF specification.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.triton_kernels.words import fp4_values, iq4_values, less, spread

EIGHTS = tl.constexpr(0x08080808)
SIXTEENS = tl.constexpr(0x10101010)
THIRTY_TWOS = tl.constexpr(0x20202020)
FOURS = tl.constexpr(0x04040404)
NIBBLES = tl.constexpr(0x0F0F0F0F)
ONES = tl.constexpr(0x01010101)
THREES = tl.constexpr(0x03030303)


@triton.jit
def _words(W, origin, offset, r, RB: tl.constexpr, SKIP: tl.constexpr):
    return (W + origin).to(tl.pointer_type(tl.int32)) + offset + r * (RB // 4) + SKIP // 4


@triton.jit
def _shorts(W, origin, offset, r, RB: tl.constexpr, SKIP: tl.constexpr):
    return (W + origin).to(tl.pointer_type(tl.uint16)) + offset + r * (RB // 2) + SKIP // 2


@triton.jit
def _halves(W, origin, offset, r, RB: tl.constexpr, SKIP: tl.constexpr):
    return (W + origin).to(tl.pointer_type(tl.float16)) + offset + r * (RB // 2) + SKIP // 2


@triton.jit
def _bytes(W, origin, offset, r, RB: tl.constexpr, SKIP: tl.constexpr):
    return W + origin + offset + r * RB + SKIP


@triton.jit
def _half(W, origin, offset, r, RB: tl.constexpr, SKIP: tl.constexpr):
    return tl.load(_halves(W, origin, offset, r, RB, SKIP)).to(tl.float32)


@triton.jit
def _word(W, origin, offset, r, RB: tl.constexpr, SKIP: tl.constexpr):
    return tl.load(_words(W, origin, offset, r, RB, SKIP))


@triton.jit
def _two_shorts(W, origin, offset, r, RB: tl.constexpr, SKIP: tl.constexpr):
    """A word that is only 2-byte aligned."""
    at = _shorts(W, origin, offset, r, RB, SKIP)
    return tl.load(at).to(tl.int32) | tl.load(at + 1).to(tl.int32) << 16


@triton.jit
def _q8_0(W, origin, r, p, i, rh, ph, RB: tl.constexpr, SKIP: tl.constexpr):
    offset = p * 17 + 1 + 2 * i
    lo, hi = _two_shorts(W, origin, offset, r, RB, SKIP), _two_shorts(W, origin, offset, r, RB, SKIP + 16)
    d = _half(W, origin, ph * 17, rh, RB, SKIP)
    return lo, hi, d, d, d, d


@triton.jit
def _q4_0(W, origin, r, p, i, rh, ph, RB: tl.constexpr, SKIP: tl.constexpr):
    packed = _two_shorts(W, origin, p * 9 + 1 + 2 * i, r, RB, SKIP)
    d = _half(W, origin, ph * 9, rh, RB, SKIP)
    return less(packed & NIBBLES, EIGHTS), less((packed >> 4) & NIBBLES, EIGHTS), d, d, d, d


@triton.jit
def _q4_1(W, origin, r, p, i, rh, ph, RB: tl.constexpr, SKIP: tl.constexpr):
    packed = _word(W, origin, p * 5 + 1 + i, r, RB, SKIP)
    d, m = _half(W, origin, ph * 10, rh, RB, SKIP), -_half(W, origin, ph * 10, rh, RB, SKIP + 2)
    return packed & NIBBLES, (packed >> 4) & NIBBLES, d, d, m, m


@triton.jit
def _q5_0(W, origin, r, p, i, rh, ph, RB: tl.constexpr, SKIP: tl.constexpr):
    packed = _two_shorts(W, origin, p * 11 + 3 + 2 * i, r, RB, SKIP)
    fifth = _two_shorts(W, origin, p * 11 + 1, r, RB, SKIP)
    d = _half(W, origin, ph * 11, rh, RB, SKIP)
    lo = (packed & NIBBLES) | spread(fifth >> 4 * i) << 4
    hi = ((packed >> 4) & NIBBLES) | spread(fifth >> 4 * i + 16) << 4
    return less(lo, SIXTEENS), less(hi, SIXTEENS), d, d, d, d


@triton.jit
def _q5_1(W, origin, r, p, i, rh, ph, RB: tl.constexpr, SKIP: tl.constexpr):
    packed, fifth = _word(W, origin, p * 6 + 2 + i, r, RB, SKIP), _word(W, origin, p * 6 + 1, r, RB, SKIP)
    d, m = _half(W, origin, ph * 12, rh, RB, SKIP), -_half(W, origin, ph * 12, rh, RB, SKIP + 2)
    lo = (packed & NIBBLES) | spread(fifth >> 4 * i) << 4
    hi = ((packed >> 4) & NIBBLES) | spread(fifth >> 4 * i + 16) << 4
    return lo, hi, d, d, m, m


@triton.jit
def _iq4_nl(W, origin, r, p, i, rh, ph, RB: tl.constexpr, SKIP: tl.constexpr, ASM: tl.constexpr):
    lo, hi = iq4_values(_two_shorts(W, origin, p * 9 + 1 + 2 * i, r, RB, SKIP), ASM)
    d = _half(W, origin, ph * 9, rh, RB, SKIP)
    return lo, hi, d, d, d, d


@triton.jit
def _mxfp4(W, origin, r, p, i, rh, ph, RB: tl.constexpr, SKIP: tl.constexpr, ASM: tl.constexpr):
    # Blocks of 17 bytes lie anywhere: a word is made of the two aligned ones that it lies in. SKIP is a multiple of 4.
    offset = (origin & 3).to(tl.int32) + r * RB + p * 17 + 1 + 4 * i
    shift = (offset & 3) * 8
    at = (W + (origin - (origin & 3))).to(tl.pointer_type(tl.int32)) + (offset >> 2) + SKIP // 4
    first = tl.load(at).to(tl.int64) & 0xFFFFFFFF
    second = tl.load(at + 1, mask=shift != 0, other=0).to(tl.int64)
    lo, hi = fp4_values(((first | second << 32) >> shift).to(tl.int32), ASM)
    exponent = tl.load(_bytes(W, origin, ph * 17, rh, RB, SKIP)).to(tl.int32)  # 2^(exponent - 128), the two least denormal
    bits = tl.where(exponent < 2, 0x00200000 << tl.minimum(exponent, 1), (exponent - 1) << 23)
    d = bits.to(tl.float32, bitcast=True)
    return lo, hi, d, d, d, d


@triton.jit
def _k_head(W, origin, rh, ph, i, RB: tl.constexpr, SKIP: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr):
    """d and m of the two runs of pairs of Q4_K and Q5_K, whose heads of 16 bytes are alike.

    VECTOR: rh and ph are [1, R, 1], [1, 1, H], and each head is one load of 16 bytes.
    """
    offset, j = ph // 8 * (BLOCK // 4), ph % 8 // 2
    if VECTOR:
        head = tl.load(_words(W, origin, offset[:, :, :, None] + i, rh[:, :, :, None], RB, SKIP))
        first, low = tl.sum(tl.where(i == 0, head, 0), 3), tl.sum(tl.where(i == 1, head, 0), 3)
        mid, high = tl.sum(tl.where(i == 2, head, 0), 3), tl.sum(tl.where(i == 3, head, 0), 3)
    else:
        at = _words(W, origin, offset, rh, RB, SKIP)
        first, low, mid, high = tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)
    shift = (j & 1) * 16
    low, mid, high = low >> shift, mid >> shift, high >> shift
    scales = tl.where(j < 2, low & 0x3F3F, (high & 0x0F0F) | ((low >> 2) & 0x3030))
    mins = tl.where(j < 2, mid & 0x3F3F, ((high >> 4) & 0x0F0F) | ((mid >> 2) & 0x3030))
    d = first.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    m = (first >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    dl, dh = d * (scales & 255).to(tl.float32), d * (scales >> 8).to(tl.float32)
    return dl, dh, m * (mins & 255).to(tl.float32), m * (mins >> 8).to(tl.float32)


@triton.jit
def _q4_k(W, origin, r, p, i, rh, ph, RB: tl.constexpr, SKIP: tl.constexpr, VECTOR: tl.constexpr):
    # Read once and whole, so out of the caches; formats whose sectors several loads read must not be.
    at = _words(W, origin, p // 8 * 36 + 4 + p % 8 * 4 + i, r, RB, SKIP)
    packed = tl.load(at, eviction_policy="evict_first")
    dl, dh, ml, mh = _k_head(W, origin, rh, ph, i, RB, SKIP, 144, VECTOR)
    return packed & NIBBLES, (packed >> 4) & NIBBLES, dl, dh, ml, mh


@triton.jit
def _q5_k(W, origin, r, p, i, rh, ph, RB: tl.constexpr, SKIP: tl.constexpr, VECTOR: tl.constexpr):
    packed = _word(W, origin, p // 8 * 44 + 12 + p % 8 * 4 + i, r, RB, SKIP)
    fifth = _word(W, origin, p // 8 * 44 + 4 + p % 2 * 4 + i, r, RB, SKIP) >> p % 8 // 2 * 2
    dl, dh, ml, mh = _k_head(W, origin, rh, ph, i, RB, SKIP, 176, VECTOR)
    lo = (packed & NIBBLES) | (fifth & ONES) << 4
    hi = ((packed >> 4) & NIBBLES) | ((fifth >> 1) & ONES) << 4
    return lo, hi, dl, dh, ml, mh


@triton.jit
def _two_bits_run(ph):
    """Which of the 16 scales of a block the first run of a pair has in Q2_K and Q3_K; the second has the next but one."""
    return ph % 8 // 2 * 4 + ph % 2


@triton.jit
def _q2_k(W, origin, r, p, i, rh, ph, RB: tl.constexpr, SKIP: tl.constexpr):
    # Pairs 4 n + 2 j + s share 16 bytes at 32 n + 16 s, shifted by 4 j for the first run and by 2 more for the second.
    packed = _word(W, origin, p // 8 * 21 + 4 + p % 8 // 4 * 8 + p % 2 * 4 + i, r, RB, SKIP) >> p % 4 // 2 * 4
    scales = _bytes(W, origin, ph // 8 * 84 + _two_bits_run(ph), rh, RB, SKIP)
    first, second = tl.load(scales).to(tl.int32), tl.load(scales + 2).to(tl.int32)
    d, m = _half(W, origin, ph // 8 * 42, rh, RB, SKIP + 80), _half(W, origin, ph // 8 * 42, rh, RB, SKIP + 82)
    dl, dh = d * (first & 15).to(tl.float32), d * (second & 15).to(tl.float32)
    ml, mh = m * (first >> 4).to(tl.float32), m * (second >> 4).to(tl.float32)
    return packed & THREES, (packed >> 2) & THREES, dl, dh, ml, mh


@triton.jit
def _q3_scale(W, origin, d, run, rh, ph, RB: tl.constexpr, SKIP: tl.constexpr):
    low = tl.load(_bytes(W, origin, ph // 8 * 110 + run % 8, rh, RB, SKIP + 96)).to(tl.int32) >> run // 8 * 4
    high = tl.load(_bytes(W, origin, ph // 8 * 110 + run % 4, rh, RB, SKIP + 104)).to(tl.int32) >> run // 4 * 2
    return d * (((low & 15) | (high & 3) << 4) - 32).to(tl.float32)


@triton.jit
def _q3_k(W, origin, r, p, i, rh, ph, RB: tl.constexpr, SKIP: tl.constexpr):
    # Two bits as in Q2_K, at 32; the third bit of pair 4 n + 2 j + s is bit 4 n + 2 j, or one more, of 16 bytes at 16 s.
    packed = _two_shorts(W, origin, p // 8 * 55 + 16 + p % 8 // 4 * 16 + p % 2 * 8 + 2 * i, r, RB, SKIP) >> p % 4 // 2 * 4
    third = _two_shorts(W, origin, p // 8 * 55 + p % 2 * 8 + 2 * i, r, RB, SKIP) >> p % 8 // 2 * 2
    d, run = _half(W, origin, ph // 8 * 55, rh, RB, SKIP + 108), _two_bits_run(ph)
    dl, dh = _q3_scale(W, origin, d, run, rh, ph, RB, SKIP), _q3_scale(W, origin, d, run + 2, rh, ph, RB, SKIP)
    lo = (packed & THREES) | (third & ONES) << 2
    hi = ((packed >> 2) & THREES) | ((third >> 1) & ONES) << 2
    return less(lo, FOURS), less(hi, FOURS), dl, dh, dl, dh


@triton.jit
def _q6_k(W, origin, r, p, i, rh, ph, RB: tl.constexpr, SKIP: tl.constexpr):
    # Pairs 4 n + 2 c + s: low bits at 64 n + 32 c + 16 s, high bits at 128 + 32 n + 16 s, shifted by 2 c and by 4 + 2 c.
    packed = _two_shorts(W, origin, p // 8 * 105 + p % 8 * 8 + 2 * i, r, RB, SKIP)
    high = _two_shorts(W, origin, p // 8 * 105 + p % 8 // 4 * 16 + p % 2 * 8 + 2 * i, r, RB, SKIP + 128) >> p % 4 // 2 * 2
    d = _half(W, origin, ph // 8 * 105, rh, RB, SKIP + 208)
    scales = _bytes(W, origin, ph // 8 * 210 + ph % 8 // 4 * 8 + ph % 4, rh, RB, SKIP + 192).to(tl.pointer_type(tl.int8))
    dl, dh = d * tl.load(scales).to(tl.float32), d * tl.load(scales + 4).to(tl.float32)
    lo = (packed & NIBBLES) | (high & THREES) << 4
    hi = ((packed >> 4) & NIBBLES) | ((high >> 4) & THREES) << 4
    return less(lo, THIRTY_TWOS), less(hi, THIRTY_TWOS), dl, dh, dl, dh


@triton.jit
def _iq4_xs(W, origin, r, p, i, rh, ph, RB: tl.constexpr, SKIP: tl.constexpr, ASM: tl.constexpr):
    lo, hi = iq4_values(_word(W, origin, p // 8 * 34 + 2 + p % 8 * 4 + i, r, RB, SKIP), ASM)
    head, g = _words(W, origin, ph // 8 * 34, rh, RB, SKIP), ph % 8
    first, low = tl.load(head), tl.load(head + 1)
    scale = ((low >> g * 4) & 15) | ((first >> 16 + g * 2) & 3) << 4
    d = first.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32) * (scale - 32).to(tl.float32)
    return lo, hi, d, d, d, d


@triton.jit
def load_pairs(
    W,
    origin,
    r,
    p,
    i,
    rh,
    ph,
    FORMAT: tl.constexpr,
    RB: tl.constexpr,
    SKIP: tl.constexpr,
    VECTOR: tl.constexpr,
    ASM: tl.constexpr,
):
    """lo, hi, dl, dh, ml, mh of pairs, see the head of this file."""
    if FORMAT == "Q8_0":
        return _q8_0(W, origin, r, p, i, rh, ph, RB, SKIP)
    elif FORMAT == "Q4_0":
        return _q4_0(W, origin, r, p, i, rh, ph, RB, SKIP)
    elif FORMAT == "Q4_1":
        return _q4_1(W, origin, r, p, i, rh, ph, RB, SKIP)
    elif FORMAT == "Q5_0":
        return _q5_0(W, origin, r, p, i, rh, ph, RB, SKIP)
    elif FORMAT == "Q5_1":
        return _q5_1(W, origin, r, p, i, rh, ph, RB, SKIP)
    elif FORMAT == "IQ4_NL":
        return _iq4_nl(W, origin, r, p, i, rh, ph, RB, SKIP, ASM)
    elif FORMAT == "MXFP4":
        return _mxfp4(W, origin, r, p, i, rh, ph, RB, SKIP, ASM)
    elif FORMAT == "Q4_K":
        return _q4_k(W, origin, r, p, i, rh, ph, RB, SKIP, VECTOR)
    elif FORMAT == "Q5_K":
        return _q5_k(W, origin, r, p, i, rh, ph, RB, SKIP, VECTOR)
    elif FORMAT == "Q2_K":
        return _q2_k(W, origin, r, p, i, rh, ph, RB, SKIP)
    elif FORMAT == "Q3_K":
        return _q3_k(W, origin, r, p, i, rh, ph, RB, SKIP)
    elif FORMAT == "Q6_K":
        return _q6_k(W, origin, r, p, i, rh, ph, RB, SKIP)
    else:
        tl.static_assert(FORMAT == "IQ4_XS")
        return _iq4_xs(W, origin, r, p, i, rh, ph, RB, SKIP, ASM)


@triton.jit
def first_run(p, SPAN: tl.constexpr):
    """The first run of pair p; the second is SPAN further."""
    return p // SPAN * (2 * SPAN) + p % SPAN
