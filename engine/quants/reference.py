"""Dequantisation of every format in numpy, from the format's definition: the truth that kernels are tested against.

Each product and sum is rounded to f32 once, in the order that defines the format, so results are comparable bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from engine.quants import reference_exact
from engine.quants.formats import BY_NAME
from engine.quants.reference_exact import FP4_VALUES

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]

IQ4_VALUES: F32 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def dequantise(name: str, raw: U8) -> F32:
    """The values stored in `raw`: [..., n_bytes] uint8, whole blocks of the format `name`, to [..., n_values] f32.

    Raises:
        KeyError: a format without a definition here.
        ValueError: the last axis does not hold whole blocks.
    """
    fmt = BY_NAME[name]
    if raw.shape[-1] % fmt.type_size:
        raise ValueError(f"{raw.shape[-1]} bytes are not whole {name} blocks of {fmt.type_size}")
    blocks = np.ascontiguousarray(raw).reshape(-1, fmt.type_size)
    values = _DEQUANTISE[name](blocks)
    return values.reshape(*raw.shape[:-1], raw.shape[-1] // fmt.type_size * fmt.block)


def _halves(blocks: U8, start: int) -> F32:
    """The f16 at byte `start` of each block: [n_blocks, 1] f32."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view(np.float16).astype(np.float32)


def _nibbles(packed: U8) -> F32:
    """Low nibbles, then high nibbles of the last axis."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.float32)


def _f32(blocks: U8) -> F32:
    return blocks.view(np.float32)


def _f16(blocks: U8) -> F32:
    return blocks.view(np.float16).astype(np.float32)


def _bf16(blocks: U8) -> F32:
    return (blocks.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: U8) -> F32:
    return _halves(blocks, 0) * (_nibbles(blocks[:, 2:]) - np.float32(8))


def _q4_1(blocks: U8) -> F32:
    return _halves(blocks, 0) * _nibbles(blocks[:, 4:]) + _halves(blocks, 2)


def _bits(packed: U8) -> U8:
    """Bit i of the last axis as value i."""
    return np.unpackbits(packed, axis=-1, bitorder="little")


def _five_bits(packed: U8, high: U8) -> F32:
    return _nibbles(packed) + np.float32(16) * _bits(high).astype(np.float32)


def _q5_0(blocks: U8) -> F32:
    return _halves(blocks, 0) * (_five_bits(blocks[:, 6:], blocks[:, 2:6]) - np.float32(16))


def _q5_1(blocks: U8) -> F32:
    return _halves(blocks, 0) * _five_bits(blocks[:, 8:], blocks[:, 4:8]) + _halves(blocks, 2)


def _chosen(values: F32, packed: U8) -> F32:
    """The values that nibbles choose, low nibbles first."""
    chosen: F32 = values[np.concatenate([packed & 15, packed >> 4], axis=-1)]
    return chosen


def _iq4_nl(blocks: U8) -> F32:
    return _halves(blocks, 0) * _chosen(IQ4_VALUES, blocks[:, 2:])


def _mxfp4(blocks: U8) -> F32:
    return np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128).astype(np.float32) * _chosen(FP4_VALUES, blocks[:, 1:])


def _q8_0(blocks: U8) -> F32:
    return _halves(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _q4_k_scales(blocks: U8) -> tuple[F32, F32]:
    """d and m of the 8 groups of Q4_K and Q5_K blocks, whose heads are alike: [n_blocks, 8, 1] each."""
    packed = blocks[:, 4:16]
    low, mid, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 6) << 4)], axis=1).astype(np.float32)
    mins = np.concatenate([mid & 63, (high >> 4) | ((mid >> 6) << 4)], axis=1).astype(np.float32)
    return (_halves(blocks, 0) * scales)[:, :, None], (_halves(blocks, 2) * mins)[:, :, None]


def _q4_k(blocks: U8) -> F32:
    d, m = _q4_k_scales(blocks)
    return d * _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32) - m


def _q5_k(blocks: U8) -> F32:
    d, m = _q4_k_scales(blocks)
    low = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    fifth = _bits(blocks[:, 16:48]).reshape(-1, 32, 8).transpose(0, 2, 1)
    return d * (low + np.float32(16) * fifth.astype(np.float32)) - m


def _two_bits(packed: U8) -> U8:
    """64 bytes of Q2_K or Q3_K as [n_blocks, 256]: in each half, bits 2 j of 32 bytes are values 32 j on."""
    shifts = np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    return (packed.reshape(-1, 2, 1, 32) >> shifts & np.uint8(3)).reshape(-1, 256).astype(np.uint8)


def _q2_k(blocks: U8) -> F32:
    scales = blocks[:, :16]
    d = _halves(blocks, 80) * (scales & 15).astype(np.float32)
    m = _halves(blocks, 82) * (scales >> 4).astype(np.float32)
    return d[:, :, None] * _two_bits(blocks[:, 16:80]).astype(np.float32).reshape(-1, 16, 16) - m[:, :, None]


def _q3_k(blocks: U8) -> F32:
    packed = blocks[:, 96:108]
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
    high = np.concatenate([packed[:, 8:] >> shift & 3 for shift in (0, 2, 4, 6)], axis=1)
    d = _halves(blocks, 108) * ((low | high << 4).astype(np.float32) - np.float32(32))
    third = _bits(blocks[:, :32]).reshape(-1, 32, 8).transpose(0, 2, 1).reshape(-1, 256)
    q: F32 = (_two_bits(blocks[:, 32:96]) | third << 2).astype(np.float32) - np.float32(4)
    values: F32 = d[:, :, None] * q.reshape(-1, 16, 16)
    return values


def _iq4_xs(blocks: U8) -> F32:
    low = blocks[:, 4:8, None] >> np.array([0, 4], np.uint8) & 15
    high = np.ascontiguousarray(blocks[:, 2:4]).view(np.uint16) >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    d = _halves(blocks, 0) * ((low.reshape(-1, 8) | high << 4).astype(np.float32) - np.float32(32))
    return d[:, :, None] * _chosen(IQ4_VALUES, blocks[:, 8:].reshape(-1, 8, 16))


def _q6_k(blocks: U8) -> F32:
    low = blocks[:, :128].reshape(-1, 2, 1, 64) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1) & 15
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1) & 3
    q = (low.reshape(-1, 2, 4, 32) | high << 4).astype(np.float32) - np.float32(32)
    d = _halves(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    return d[:, :, None] * q.reshape(-1, 16, 16)


_DEQUANTISE: dict[str, Callable[[U8], F32]] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
    **reference_exact.DEQUANTISE,
}
