"""Where the buffers of a GPU lane lie in one piece of the card's memory, whose size is known before anything is loaded."""

from __future__ import annotations

GPU_ALIGN = 256
"""Bytes: what allocators of cards give, and what kernels may count on."""


def acts_bytes(rows: int, width: int) -> int:
    """Room for all parts of `Acts`, each from a multiple of GPU_ALIGN on: values, f16, codes, scales of 32, sums of 16."""
    groups = -(-width // 32)
    return sum(-(-rows * nbytes // GPU_ALIGN) * GPU_ALIGN for nbytes in (4 * width, 2 * width, width, 4 * groups, 8 * groups))
