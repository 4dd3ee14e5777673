"""The quantisation formats that this engine runs, by name and by ggml id.

Built from the kernels' own table, the one source of sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernels_pyx.formats import FORMATS as _ROWS

Act = Literal["f32", "q8_32", "q8_256"]
Path = Literal["fast", "exact"]
_ACTS: dict[str, Act] = {"f32": "f32", "q8_32": "q8_32", "q8_256": "q8_256"}
_PATHS: dict[str, Path] = {"fast": "fast", "exact": "exact"}


@dataclass(frozen=True, slots=True)
class QuantFormat:
    """How weights of one ggml type are stored: `block` values in `type_size` bytes.

    `act` is the activation layout that its kernels multiply with. `path` is "fast", or "exact" for formats that are dequantised
    and multiplied as f32: right, but several times slower.
    """

    name: str
    ggml_id: int
    block: int
    type_size: int
    act: Act
    path: Path

    @property
    def bits_per_weight(self) -> float:
        """Stored bits for one weight, scales included."""
        return 8 * self.type_size / self.block

    @property
    def is_float(self) -> bool:
        """Whether the values are plain floating-point numbers, one per block."""
        return self.block == 1

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of k values.

        Raises:
            ValueError: k is not a multiple of the block.
        """
        if k % self.block:
            raise ValueError(f"a {self.name} row has a multiple of {self.block} values, not {k}")
        return k // self.block * self.type_size


FORMATS: tuple[QuantFormat, ...] = tuple(
    QuantFormat(row.name, row.ggml_id, row.block, row.type_size, _ACTS[row.act], _PATHS[row.path]) for row in _ROWS
)
BY_NAME: dict[str, QuantFormat] = {row.name: row for row in FORMATS}
BY_ID: dict[int, QuantFormat] = {row.ggml_id: row for row in FORMATS}
