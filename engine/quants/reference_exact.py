"""Dequantisation in numpy of the formats on the exact path: rows of grids, digits of base 3, small floats.

As in `reference`, each product and sum is rounded to f32 once, in the order that defines the format.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

from kernels_pyx.formats import grids

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
F32 = npt.NDArray[np.float32]

FP4_VALUES: F32 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)  # E2M1, doubled
_HALF, _QUARTER = np.float32(0.5), np.float32(0.25)
_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)


@cache
def _grid(name: str) -> F32:
    return np.array(grids()[name], np.float32)


def _half(blocks: U8, start: int) -> F32:
    return np.ascontiguousarray(blocks[:, start : start + 2]).view(np.float16).astype(np.float32)


def _words(blocks: U8, start: int, end: int, dtype: npt.DTypeLike) -> U32:
    """Bytes of each block as unsigned numbers: [n_blocks, n] uint32."""
    return np.ascontiguousarray(blocks[:, start:end]).view(dtype).astype(np.uint32)


def _fields(words: U32, shifts: tuple[int, ...], mask: int) -> U32:
    """Several fields of each number, in the order of `shifts`: [n_blocks, n * len(shifts)]."""
    fields = words[:, :, None] >> np.array(shifts, np.uint32) & np.uint32(mask)
    return fields.reshape(len(words), -1)


def _eight(seven: U32) -> U32:
    """Seven sign bits with the eighth, which makes the number of minuses even."""
    parity = seven.copy()
    for shift in (4, 2, 1):
        parity ^= parity >> np.uint32(shift)
    return seven | (parity & np.uint32(1)) << np.uint32(7)


def _signs(eights: U32) -> F32:
    """+1 or -1 for each bit: [n_blocks, 8 * n]."""
    return np.float32(1) - np.float32(2) * _fields(eights, tuple(range(8)), 1).astype(np.float32)


def _signed(d: F32, rows: F32, signs: F32) -> F32:
    """d * row * sign, a d for each run of values: [n_blocks, 256]."""
    values = rows.reshape(len(rows), -1)
    return np.repeat(d, values.shape[1] // d.shape[1], axis=1) * values * signs


def _iq2_xxs(blocks: U8) -> F32:
    words = _words(blocks, 2, 66, np.uint32).reshape(-1, 8, 2)
    rows = _grid("IQ2_XXS")[_fields(words[:, :, 0], (0, 8, 16, 24), 255)]
    d = _half(blocks, 0) * (_HALF + (words[:, :, 1] >> 28).astype(np.float32)) * _QUARTER
    return _signed(d, rows, _signs(_eight(_fields(words[:, :, 1], (0, 7, 14, 21), 127))))


def _nibble_scales(blocks: U8, start: int, end: int) -> F32:
    return _fields(_words(blocks, start, end, np.uint8), (0, 4), 15).astype(np.float32)


def _iq2_xs(blocks: U8) -> F32:
    words = _words(blocks, 2, 66, np.uint16)
    d = _half(blocks, 0) * (_HALF + _nibble_scales(blocks, 66, 74)) * _QUARTER
    return _signed(d, _grid("IQ2_XS")[words & 511], _signs(_eight(words >> np.uint32(9))))


def _iq2_s(blocks: U8) -> F32:
    high = _fields(_words(blocks, 66, 74, np.uint8), (0, 2, 4, 6), 3)
    rows = _grid("IQ2_S")[_words(blocks, 2, 34, np.uint8) | high << 8]
    d = _half(blocks, 0) * (_HALF + _nibble_scales(blocks, 74, 82)) * _QUARTER
    return _signed(d, rows, _signs(_words(blocks, 34, 66, np.uint8)))


def _iq3_xxs(blocks: U8) -> F32:
    words = _words(blocks, 66, 98, np.uint32)
    d = _half(blocks, 0) * (_HALF + (words >> 28).astype(np.float32)) * _HALF
    rows = _grid("IQ3_XXS")[_words(blocks, 2, 66, np.uint8)]
    return _signed(d, rows, _signs(_eight(_fields(words, (0, 7, 14, 21), 127))))


def _iq3_s(blocks: U8) -> F32:
    high = _fields(_words(blocks, 66, 74, np.uint8), tuple(range(8)), 1)
    d = _half(blocks, 0) * (np.float32(1) + np.float32(2) * _nibble_scales(blocks, 106, 110))
    rows = _grid("IQ3_S")[_words(blocks, 2, 66, np.uint8) | high << 8]
    return _signed(d, rows, _signs(_words(blocks, 74, 106, np.uint8)))


def _shifted(d: F32, rows: F32, is_negative: U32) -> F32:
    """d * (row +- 1/8), a sign of the eighth for each run of values: [n_blocks, 256]."""
    values = rows.reshape(len(rows), -1)
    eighth = np.where(is_negative != 0, np.float32(-0.125), np.float32(0.125))
    n = values.shape[1]
    shifted: F32 = np.repeat(d, n // d.shape[1], axis=1) * (values + np.repeat(eighth, n // eighth.shape[1], axis=1))
    return shifted


def _iq1_s(blocks: U8) -> F32:
    high = _words(blocks, 34, 50, np.uint16)
    rows = _grid("IQ1_S")[_words(blocks, 2, 34, np.uint8) | _fields(high, (0, 3, 6, 9), 7) << 8]
    d = _half(blocks, 0) * (2 * (high >> 12 & 7) + 1).astype(np.float32)
    return _shifted(d, rows, high >> np.uint32(15))


def _iq1_m(blocks: U8) -> F32:
    words = _words(blocks, 48, 56, np.uint16)
    bits = (words >> 12) << np.array([0, 4, 8, 12], np.uint32)
    half = bits.sum(axis=1, dtype=np.uint32).astype(np.uint16).view(np.float16).astype(np.float32)
    high = _fields(_words(blocks, 32, 48, np.uint8), (0, 4), 15)
    rows = _grid("IQ1_S")[_words(blocks, 0, 32, np.uint8) | (high & 7) << 8]
    d = half[:, None] * (2 * _fields(words, (0, 3, 6, 9), 7) + 1).astype(np.float32)
    return _shifted(d, rows, high & np.uint32(8))


def _digits(packed: U8, n: int) -> F32:
    """The first n digits of base 3 of bytes, digit by digit: [n_blocks, n * n_bytes], less 1."""
    scaled = packed[:, None, :] * _POWERS[:n, None]  # modulo 256
    return ((scaled.astype(np.uint16) * 3 >> 8).astype(np.float32) - np.float32(1)).reshape(len(packed), -1)


def _tq1_0(blocks: U8) -> F32:
    parts = [_digits(blocks[:, :32], 5), _digits(blocks[:, 32:48], 5), _digits(blocks[:, 48:52], 4)]
    return _half(blocks, 52) * np.concatenate(parts, axis=1)


def _tq2_0(blocks: U8) -> F32:
    q = blocks[:, :64].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1) & 3
    return _half(blocks, 64) * (q.reshape(-1, 256).astype(np.float32) - np.float32(1))


def _nvfp4(blocks: U8) -> F32:
    scales = blocks[:, :4].astype(np.int32)
    exponent, fraction = scales >> 3 & 15, scales & 7
    d = np.where(
        exponent == 0, np.ldexp(fraction.astype(np.float32), -10), np.ldexp((8 + fraction).astype(np.float32), exponent - 11)
    )
    d = np.where(scales == 0x7F, np.float32(0), d).astype(np.float32)
    packed = blocks[:, 4:].reshape(-1, 4, 8)
    q = FP4_VALUES[np.concatenate([packed & 15, packed >> 4], axis=-1)]
    values: F32 = (d[:, :, None] * q).reshape(len(blocks), -1)
    return values


def _q1_0(blocks: U8) -> F32:
    q = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").astype(np.float32)
    return _half(blocks, 0) * (np.float32(2) * q - np.float32(1))


DEQUANTISE: dict[str, Callable[[U8], F32]] = {
    "IQ2_XXS": _iq2_xxs,
    "IQ2_XS": _iq2_xs,
    "IQ2_S": _iq2_s,
    "IQ3_XXS": _iq3_xxs,
    "IQ3_S": _iq3_s,
    "IQ1_S": _iq1_s,
    "IQ1_M": _iq1_m,
    "TQ1_0": _tq1_0,
    "TQ2_0": _tq2_0,
    "NVFP4": _nvfp4,
    "Q1_0": _q1_0,
}
