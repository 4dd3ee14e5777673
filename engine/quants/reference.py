"""Dequantisation of every format in numpy, from the format's definition: the truth that kernels are tested against.

Each product and sum is rounded to f32 once, in the order that defines the format, so results are comparable bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from engine.quants.formats import BY_NAME

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]


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


def _q8_0(blocks: U8) -> F32:
    return _halves(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _q4_k(blocks: U8) -> F32:
    packed = blocks[:, 4:16]
    low, mid, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 6) << 4)], axis=1).astype(np.float32)
    mins = np.concatenate([mid & 63, (high >> 4) | ((mid >> 6) << 4)], axis=1).astype(np.float32)
    q = _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    d = (_halves(blocks, 0) * scales)[:, :, None]
    m = (_halves(blocks, 2) * mins)[:, :, None]
    return d * q - m


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
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q6_K": _q6_k,
}
