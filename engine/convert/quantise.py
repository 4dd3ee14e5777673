"""Weights in f32 to the blocks of a format, vectorised over rows: F32, F16, BF16, Q8_0, Q4_K and Q6_K. The truth about the
blocks is `engine.quants.reference`, which turns them back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from engine.errors import ConversionError

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
U8 = npt.NDArray[np.uint8]

_AFFINE_STEPS = (-0.9, -0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.7, 1.1)
"""What is added to 15 levels over the range of a group: a little less than the range clips its ends and rounds the rest finer."""
_SYMMETRIC_STEPS = (-0.7, -0.4, -0.2, 0.0, 0.2, 0.4, 0.7)


def quantise(values: F32, type_name: str) -> U8:
    """The stored bytes of `values` [rows, n_in], in order; n_in is a multiple of the format's block.

    Raises: ConversionError for values beyond the range of f16.
    """
    return _WRITERS[type_name](np.ascontiguousarray(values, np.float32)).reshape(-1).view(np.uint8)


def _f16(values: F32) -> U8:
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    if not np.isfinite(half).all() and np.isfinite(values).all():
        raise ConversionError("weights beyond 65504 do not fit f16; convert with --outtype bf16")
    return half.view(np.uint8)


def _bf16(values: F32) -> U8:
    """Rounded to the nearest, ties to even."""
    bits = values.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + (bits >> 16 & np.uint32(1))
    return (np.where(np.isnan(values), bits | np.uint32(0x400000), rounded) >> 16).astype(np.uint16).view(np.uint8)


def _q8_0(values: F32) -> U8:
    """32 values: f16 scale d, int8 q; value = d q."""
    x = values.reshape(-1, 32)
    d = np.abs(x).max(1, keepdims=True) / np.float32(127)
    q = np.rint(x * _inverse(d)).astype(np.int8)
    return np.concatenate([d.astype(np.float16).view(np.uint8), q.view(np.uint8)], 1)


def _q4_k(values: F32) -> U8:
    """256 values: f16 d and dmin, 8 groups of 32 with 6-bit scale s and minimum m; value = d s q - dmin m, q of 4 bits."""
    x = values.reshape(-1, 8, 32)
    weight = np.sqrt((x * x).mean(2, keepdims=True)) + np.abs(x)
    scale, low = _affine(x, weight)
    d, s = _six_bits(scale)
    dmin, m = _six_bits(-low)
    step, floor = (d * s)[..., None], (dmin * m)[..., None]
    q = np.clip(np.rint((x + floor) * _inverse(step)), 0, 15).astype(np.uint8)
    head = np.concatenate([d.astype(np.float16), dmin.astype(np.float16)], 1).view(np.uint8)
    pairs = q.reshape(-1, 4, 2, 32)
    return np.concatenate([head, _pack_six(s.astype(np.uint8), m.astype(np.uint8)), _nibbles(pairs)], 1)


def _q6_k(values: F32) -> U8:
    """256 values: 16 groups of 16 with int8 scale s under one f16 d; value = d s q, q from -32 to 31, low 4 and high 2 bits
    apart."""
    x = values.reshape(-1, 16, 16)
    scale = _symmetric(x, np.abs(x) * np.abs(x))
    widest = np.take_along_axis(scale, np.abs(scale).argmax(1)[:, None], 1)
    d = (widest / np.float32(-128)).astype(np.float16).astype(np.float32)
    s = np.clip(np.rint(scale * _inverse(d)), -128, 127)
    q = np.clip(np.rint(x * _inverse((d * s)[..., None])), -32, 31).astype(np.int32) + 32
    # Halves of 128 values are four runs of 32: low bits of runs 0 and 2, and of 1 and 3, share bytes; high bits of all four do.
    runs = q.reshape(-1, 2, 4, 32)
    low = (runs[:, :, :2] & 15 | (runs[:, :, 2:] & 15) << 4).astype(np.uint8).reshape(-1, 128)
    shifts = np.array([0, 2, 4, 6], np.int32)[None, None, :, None]
    high = np.bitwise_or.reduce((runs >> 4) << shifts, axis=2).astype(np.uint8).reshape(-1, 64)
    return np.concatenate([low, high, s.astype(np.int8).view(np.uint8), d.astype(np.float16).view(np.uint8)], 1)


def _affine(x: F32, weight: F32) -> tuple[F32, F32]:
    """(scale, minimum <= 0) of each group [blocks, groups] with the least weighted squared error of 16 levels."""
    low = np.minimum(x.min(2), 0)
    span = x.max(2) - low
    best_scale, best_low = span / 15, low
    best = _affine_error(x, weight, best_scale, best_low, None)
    sums = weight.sum(2), (weight * x).sum(2)
    for step in _AFFINE_STEPS:
        inverse = ((15 + step) * _inverse(span))[..., None]
        q = np.clip(np.rint((x - low[..., None]) * inverse), 0, 15)
        scale, shift = _least_squares(x, weight, q, sums)
        error = _affine_error(x, weight, scale, shift, q)
        better = error < best
        best = np.where(better, error, best)
        best_scale, best_low = np.where(better, scale, best_scale), np.where(better, shift, best_low)
    return best_scale, best_low


def _least_squares(x: F32, weight: F32, q: F32, sums: tuple[F32, F32]) -> tuple[F32, F32]:
    """The scale and the minimum <= 0 that fit x best to given levels q."""
    w, wx = sums
    weighted = weight * q
    wq, wqq, wqx = weighted.sum(2), (weighted * q).sum(2), (weighted * x).sum(2)
    determinant = w * wqq - wq * wq
    scale = (w * wqx - wx * wq) * _inverse(determinant)
    shift = (wqq * wx - wq * wqx) * _inverse(determinant)
    through_zero = (shift > 0) | (determinant <= 0)
    return np.where(through_zero, wqx * _inverse(wqq), scale), np.where(through_zero, np.float32(0), shift)


def _affine_error(x: F32, weight: F32, scale: F32, low: F32, q: F32 | None) -> F32:
    if q is None:
        q = np.clip(np.rint((x - low[..., None]) * _inverse(scale)[..., None]), 0, 15)
    off = scale[..., None] * q + low[..., None] - x
    error: F32 = (weight * off * off).sum(2)
    return error


def _symmetric(x: F32, weight: F32) -> F32:
    """The scale of each group [blocks, groups] with the least weighted squared error of the levels -32 to 31. The widest value
    takes level -32, whatever its sign."""
    widest = np.take_along_axis(x, np.abs(x).argmax(2)[..., None], 2)[..., 0]
    best_scale, best_gain = np.zeros_like(widest), np.zeros_like(widest)
    for step in _SYMMETRIC_STEPS:
        inverse = (-(32 + step) * _inverse(widest))[..., None]
        q = np.clip(np.rint(x * inverse), -32, 31)
        weighted = weight * q
        xq, qq = (weighted * x).sum(2), (weighted * q).sum(2)
        # The error falls by (sum w x q)^2 / sum w q^2 when the scale is the best one for these levels.
        gain = xq * xq * _inverse(qq)
        better = gain > best_gain
        best_gain = np.where(better, gain, best_gain)
        best_scale = np.where(better, xq * _inverse(qq), best_scale)
    return best_scale


def _six_bits(group: F32) -> tuple[F32, F32]:
    """(f16 scale of the block [blocks, 1], 6-bit number of each group) of non-negative numbers [blocks, 8]."""
    group = np.maximum(group, 0)
    d = (group.max(1, keepdims=True) / np.float32(63)).astype(np.float16).astype(np.float32)
    return d, np.clip(np.rint(group * _inverse(d)), 0, 63).astype(np.float32)


def _pack_six(s: U8, m: U8) -> U8:
    """8 scales and 8 minima of 6 bits in 12 bytes: the first four of each whole, the low 4 bits of the others, whose high 2 bits
    fill the tops of the first eight bytes."""
    first = np.concatenate([s[:, :4] | (s[:, 4:] >> 4) << 6, m[:, :4] | (m[:, 4:] >> 4) << 6], 1)
    return np.concatenate([first, s[:, 4:] & 15 | (m[:, 4:] & 15) << 4], 1)


def _nibbles(pairs: U8) -> U8:
    """[blocks, n, 2, 32] levels to [blocks, n * 32] bytes: the first of each pair low, the second high."""
    packed = pairs[:, :, 0] | np.left_shift(pairs[:, :, 1], 4)
    return packed.astype(np.uint8).reshape(len(pairs), -1)


def _inverse(values: F32) -> F32:
    """1 / values, 0 where they are 0."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(values == 0, np.float32(0), np.float32(1) / values).astype(np.float32)


_WRITERS: dict[str, Callable[[F32], U8]] = {
    "F32": lambda values: values.view(np.uint8),
    "F16": _f16,
    "BF16": _bf16,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q6_K": _q6_k,
}
