# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""Arithmetic on 32-bit words of four 8-bit numbers, for Triton kernels: in PTX where ASM is set, else in plain operations.

Triton's interpreter and devices without PTX take the plain forms, which give the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from engine.triton_kernels.torch.dequantise import FP4_VALUES, IQ4_VALUES

HIGH_BITS = tl.constexpr(-0x7F7F7F80)  # 0x80808080 as int32


def _packed(values: Sequence[int]) -> int:
    """Eight signed bytes as one int64."""
    return int.from_bytes(bytes(value & 255 for value in values), "little", signed=True)


def _lookup_ptx(values: Sequence[int]) -> str:
    """PTX: bytes of a table of 16 for the low ($0) and the high nibbles ($1) of $2.

    prmt picks bytes of two words by three bits of a selector, so the table is two halves, and the fourth bit picks a half.
    """
    words = [sum((value & 255) << 8 * k for k, value in enumerate(values[i : i + 4])) for i in range(0, 16, 4)]
    table = "".join(f"mov.b32 t{i}, {word:#x};" for i, word in enumerate(words))
    four = "prmt.b32 a, t0, t1, s; prmt.b32 b, t2, t3, s; prmt.b32 {0}, a, b, m;"
    return (
        "{ .reg .b32 s, m, a, b, x, y, t0, t1, t2, t3;"
        + table
        + "and.b32 s, $2, 0x77777777; and.b32 m, $2, 0x88888888; shr.u32 m, m, 1; or.b32 m, m, 0x32103210;"
        + four.format("x")
        + "shr.u32 s, s, 16; shr.u32 m, m, 16;"
        + four.format("y")
        + "prmt.b32 $0, x, y, 0x6420; prmt.b32 $1, x, y, 0x7531; }"
    )


_IQ4_PTX = tl.constexpr(_lookup_ptx(IQ4_VALUES))
_FP4_PTX = tl.constexpr(_lookup_ptx(FP4_VALUES))
_IQ4_LOW, _IQ4_HIGH = tl.constexpr(_packed(IQ4_VALUES[:8])), tl.constexpr(_packed(IQ4_VALUES[8:]))
_FP4_LOW, _FP4_HIGH = tl.constexpr(_packed(FP4_VALUES[:8])), tl.constexpr(_packed(FP4_VALUES[8:]))


@triton.jit
def byte(word, K: tl.constexpr):
    """Byte K of each word, signed: int32."""
    return (word << (24 - 8 * K)) >> 24


@triton.jit
def dot4(a, b, ASM: tl.constexpr):
    """The sum of the products of four signed bytes: int32."""
    if ASM:
        return tl.inline_asm_elementwise("dp4a.s32.s32 $0, $1, $2, 0;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1)
    else:
        return byte(a, 0) * byte(b, 0) + byte(a, 1) * byte(b, 1) + byte(a, 2) * byte(b, 2) + byte(a, 3) * byte(b, 3)


@triton.jit
def less(word, FOUR: tl.constexpr):
    """Bytes below 128 less a constant, signed; FOUR: the constant in each byte. No byte borrows from the next."""
    return ((word | HIGH_BITS) - FOUR) ^ HIGH_BITS


@triton.jit
def spread(bits):
    """The lowest four bits, one to a byte."""
    return ((bits & 15) * 0x00204081) & 0x01010101


@triton.jit
def _looked_up(nibbles, LOW: tl.constexpr, HIGH: tl.constexpr):
    found = tl.zeros_like(nibbles)
    for k in tl.static_range(4):
        n = (nibbles >> 8 * k) & 15
        half = tl.where(n < 8, tl.full(n.shape, LOW, tl.int64), tl.full(n.shape, HIGH, tl.int64))
        found |= ((half >> (n & 7) * 8).to(tl.int32) & 255) << 8 * k
    return found


@triton.jit
def iq4_values(packed, ASM: tl.constexpr):
    """The IQ4 values of the low and of the high nibbles."""
    if ASM:
        return tl.inline_asm_elementwise(_IQ4_PTX, "=r,=r,r", [packed], dtype=(tl.int32, tl.int32), is_pure=True, pack=1)
    else:
        return _looked_up(packed, _IQ4_LOW, _IQ4_HIGH), _looked_up(packed >> 4, _IQ4_LOW, _IQ4_HIGH)


@triton.jit
def fp4_values(packed, ASM: tl.constexpr):
    """The doubled E2M1 values of the low and of the high nibbles."""
    if ASM:
        return tl.inline_asm_elementwise(_FP4_PTX, "=r,=r,r", [packed], dtype=(tl.int32, tl.int32), is_pure=True, pack=1)
    else:
        return _looked_up(packed, _FP4_LOW, _FP4_HIGH), _looked_up(packed >> 4, _FP4_LOW, _FP4_HIGH)
