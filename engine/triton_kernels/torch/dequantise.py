"""Dequantisation in torch: uint8 blocks to f32, bit for bit what `engine.quants.reference` gives. Used by the torch kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine.triton_kernels.formats import BLOCKS
from engine.triton_kernels.tensors import Matrix

IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
FP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # E2M1, doubled


def dequantise(matrix: Matrix, rows: Tensor | slice | None = None, index: int = 0) -> Tensor:
    """Rows of matrix `index`, all without `rows`: f32 [n_rows, n_in]."""
    first = matrix.first + index * matrix.step
    stored = matrix.data[first : first + matrix.n_out * matrix.row_bytes].view(matrix.n_out, matrix.row_bytes)
    fmt = BLOCKS[matrix.format]
    chosen = (stored if rows is None else stored[rows])[:, : fmt.row_bytes(matrix.n_in)]
    return _DEQUANTISE[matrix.format](chosen.reshape(-1, fmt.type_size)).view(-1, matrix.n_in)


def _as(blocks: Tensor, dtype: torch.dtype) -> Tensor:
    return blocks.contiguous().view(dtype)


def _half(blocks: Tensor, start: int) -> Tensor:
    """The f16 at byte `start` of each block: [n_blocks, 1] f32."""
    return _as(blocks[:, start : start + 2], torch.float16).float()


def _fields(packed: Tensor, shifts: tuple[int, ...], mask: int) -> Tensor:
    """[..., n] -> [..., len(shifts), n]: all first fields, then all second ones."""
    by = torch.tensor(shifts, dtype=torch.uint8, device=packed.device).view(-1, 1)
    return packed.unsqueeze(-2) >> by & mask


def _nibbles(packed: Tensor) -> Tensor:
    """Low nibbles, then high nibbles of the last axis."""
    return _fields(packed, (0, 4), 15).flatten(-2)


def _bits(packed: Tensor) -> Tensor:
    """Bit i of the last axis as value i."""
    return _fields(packed, tuple(range(8)), 1).transpose(-1, -2).flatten(-2)


def _chosen(values: tuple[int, ...], packed: Tensor) -> Tensor:
    """The values that nibbles choose, low nibbles first: f32."""
    table = torch.tensor(values, dtype=torch.float32, device=packed.device)
    return table[_nibbles(packed).int()]


def _q4_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).float() - 8)


def _q4_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]).float() + _half(blocks, 2)


def _five_bits(packed: Tensor, high: Tensor) -> Tensor:
    return (_nibbles(packed) | _bits(high) << 4).float()


def _q5_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_five_bits(blocks[:, 6:], blocks[:, 2:6]) - 16)


def _q5_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _five_bits(blocks[:, 8:], blocks[:, 4:8]) + _half(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _as(blocks[:, 2:], torch.int8).float()


def _iq4_nl(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _chosen(IQ4_VALUES, blocks[:, 2:])


def _mxfp4(blocks: Tensor) -> Tensor:
    exponent = blocks[:, :1].int()  # the value is 2^(exponent - 128), made of bits: the two least are denormal
    scale = torch.where(exponent < 2, 0x00200000 << exponent.clamp(max=1), (exponent - 1) << 23)
    return scale.view(torch.float32) * _chosen(FP4_VALUES, blocks[:, 1:])


def _k_scales(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """d and m of the 8 groups of Q4_K and Q5_K blocks: [n_blocks, 8, 1] each."""
    low, mid, high = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat([low & 63, high & 15 | low >> 6 << 4], dim=1).float()
    mins = torch.cat([mid & 63, high >> 4 | mid >> 6 << 4], dim=1).float()
    return (_half(blocks, 0) * scales).unsqueeze(2), (_half(blocks, 2) * mins).unsqueeze(2)


def _q4_k(blocks: Tensor) -> Tensor:
    d, m = _k_scales(blocks)
    return d * _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).view(-1, 8, 32).float() - m


def _q5_k(blocks: Tensor) -> Tensor:
    d, m = _k_scales(blocks)
    low = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).view(-1, 8, 32)
    return d * (low | _fields(blocks[:, 16:48], tuple(range(8)), 1) << 4).float() - m


def _two_bits(packed: Tensor) -> Tensor:
    """64 bytes of Q2_K or Q3_K as [n_blocks, 256]: in each half, bits 2 j of 32 bytes are values 32 j on."""
    return _fields(packed.reshape(-1, 2, 32), (0, 2, 4, 6), 3).view(-1, 256)


def _q2_k(blocks: Tensor) -> Tensor:
    scales = blocks[:, :16]
    d, m = _half(blocks, 80) * (scales & 15).float(), _half(blocks, 82) * (scales >> 4).float()
    return d.unsqueeze(2) * _two_bits(blocks[:, 16:80]).float().view(-1, 16, 16) - m.unsqueeze(2)


def _q3_k(blocks: Tensor) -> Tensor:
    low, high = _nibbles(blocks[:, 96:104]), _fields(blocks[:, 104:108], (0, 2, 4, 6), 3).flatten(1)
    d = _half(blocks, 108) * ((low | high << 4).float() - 32)
    third = _fields(blocks[:, :32], tuple(range(8)), 1).flatten(1)
    q = (_two_bits(blocks[:, 32:96]) | third << 2).float() - 4
    return d.unsqueeze(2) * q.view(-1, 16, 16)


def _q6_k(blocks: Tensor) -> Tensor:
    low = _fields(blocks[:, :128].reshape(-1, 2, 64), (0, 4), 15).view(-1, 256)
    high = _fields(blocks[:, 128:192].reshape(-1, 2, 32), (0, 2, 4, 6), 3).view(-1, 256)
    d = _half(blocks, 208) * _as(blocks[:, 192:208], torch.int8).float()
    return d.unsqueeze(2) * ((low | high << 4).float() - 32).view(-1, 16, 16)


def _iq4_xs(blocks: Tensor) -> Tensor:
    low = _fields(blocks[:, 4:8], (0, 4), 15).transpose(1, 2).reshape(-1, 8)
    high = _fields(blocks[:, 2:4], (0, 2, 4, 6), 3).transpose(1, 2).reshape(-1, 8)
    d = _half(blocks, 0) * ((low | high << 4).float() - 32)
    return d.unsqueeze(2) * _chosen(IQ4_VALUES, blocks[:, 8:].reshape(-1, 8, 16))


_DEQUANTISE: dict[str, Callable[[Tensor], Tensor]] = {
    "F32": lambda blocks: _as(blocks, torch.float32),
    "F16": lambda blocks: _as(blocks, torch.float16).float(),
    "BF16": lambda blocks: _as(blocks, torch.bfloat16).float(),
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
    "Q6_K_PADDED": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
}
