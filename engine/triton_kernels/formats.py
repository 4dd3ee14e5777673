"""The formats whose blocks GPU kernels read, and the shape of these blocks. Needs no native module, as the kernels do not.

Their names are those of the file, and `padded` for what lies on the device with room behind each block.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.quants.padding import PADDED


@dataclass(frozen=True, slots=True)
class Blocks:
    """`block` values lie in `type_size` bytes.

    What `engine.triton_kernels.blocks` says of pairs: runs of 16 values that share bytes are `span` runs apart; `has_min`: a
    value is d * code - m with an m.
    """

    block: int
    type_size: int
    span: int = 1
    has_min: bool = False

    @property
    def is_float(self) -> bool:
        """Whether a block is one number."""
        return self.block == 1

    def row_bytes(self, n_in: int) -> int:
        """Bytes of n_in values."""
        return n_in // self.block * self.type_size


BLOCKS: dict[str, Blocks] = {
    "F32": Blocks(1, 4),
    "F16": Blocks(1, 2),
    "BF16": Blocks(1, 2),
    "Q4_0": Blocks(32, 18),
    "Q4_1": Blocks(32, 20, has_min=True),
    "Q5_0": Blocks(32, 22),
    "Q5_1": Blocks(32, 24, has_min=True),
    "Q8_0": Blocks(32, 34),
    "Q2_K": Blocks(256, 84, span=2, has_min=True),
    "Q3_K": Blocks(256, 110, span=2),
    "Q4_K": Blocks(256, 144, span=2, has_min=True),
    "Q5_K": Blocks(256, 176, span=2, has_min=True),
    "Q6_K": Blocks(256, 210, span=4),
    "Q6_K_PADDED": Blocks(256, PADDED["Q6_K"][1], span=4),
    "IQ4_NL": Blocks(32, 18),
    "IQ4_XS": Blocks(256, 136),
    "MXFP4": Blocks(32, 17),
}

WIDE = frozenset({"Q4_K", "Q5_K", "Q6_K_PADDED"})
"""Formats whose blocks lie so that a thread takes 16 bytes of codes with one load."""


def padded(format: str) -> str:
    """The format in which weights of a file's format lie on a device that keeps them."""
    return f"{format}_PADDED" if format in PADDED else format


def unsupported(format: str) -> str | None:
    """None, or why GPU kernels cannot read weights of this format; one clause."""
    return None if format in BLOCKS else f"{format} weights have no GPU kernels"
