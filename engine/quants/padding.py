"""Blocks that take more room on a GPU than in the file, so that wide loads reach them. Needs no native module."""

from __future__ import annotations

PADDED = {"Q6_K": (210, 224)}
"""By format: bytes of a block in the file, and on a GPU, where unused bytes follow it: 210 lie on 2 bytes, 224 on 32."""


def padded_bytes(format: str, nbytes: int) -> int:
    """The room that nbytes of whole blocks of the file take on a GPU."""
    stored, padded = PADDED.get(format, (1, 1))
    return nbytes // stored * padded
