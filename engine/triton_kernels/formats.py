"""The formats whose blocks GPU kernels read, and the sizes of these blocks. Needs no native module, as the kernels do not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Blocks:
    """`block` values lie in `type_size` bytes. is_float: plain numbers, which are multiplied as they are."""

    block: int
    type_size: int

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
    "Q4_1": Blocks(32, 20),
    "Q5_0": Blocks(32, 22),
    "Q5_1": Blocks(32, 24),
    "Q8_0": Blocks(32, 34),
    "Q2_K": Blocks(256, 84),
    "Q3_K": Blocks(256, 110),
    "Q4_K": Blocks(256, 144),
    "Q5_K": Blocks(256, 176),
    "Q6_K": Blocks(256, 210),
    "IQ4_NL": Blocks(32, 18),
    "IQ4_XS": Blocks(256, 136),
    "MXFP4": Blocks(32, 17),
}


def unsupported(format: str) -> str | None:
    """None, or why GPU kernels cannot read weights of this format; one clause."""
    return None if format in BLOCKS else f"{format} weights have no GPU kernels"
