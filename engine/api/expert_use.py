"""How often each expert was passed in the making of an answer: small enough to be stored with every message.

Imports numpy only where counts are asked for, since this module is part of what every window imports.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.errors import InvalidRequest

if TYPE_CHECKING:
    import numpy.typing as npt
    from numpy import integer, uint32

_MAGIC = b"LDX1"
_HEAD = struct.Struct("<4sHHBI")
"""Magic, layers, experts, bytes of a count, bytes of the packed counts."""


@dataclass(frozen=True, slots=True)
class ExpertUse:
    """Counts by layer and expert. layers: those that have experts; rows: of each, the tokens that passed its router.

    Every token of an answer and of the part of its prompt that was computed passes every layer, but for the last layer of a
    prompt: there only the token whose logits are wanted goes on. The counts of a layer add up to its rows times the experts that
    a token passes.
    """

    layers: tuple[int, ...]
    rows: tuple[int, ...]
    n_experts: int
    item_bytes: int = field(repr=False)
    packed: bytes = field(repr=False)
    """The counts, row by row, little-endian of item_bytes each, as zlib packs them."""

    @property
    def n_tokens(self) -> int:
        """Tokens that were computed."""
        return max(self.rows, default=0)

    @staticmethod
    def of(layers: tuple[int, ...], rows: tuple[int, ...], counts: npt.NDArray[integer]) -> ExpertUse:
        """Of counts [n_layers, n_experts]."""
        largest = int(counts.max(initial=0))
        item = 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 4
        packed = zlib.compress(counts.astype(f"<u{item}").tobytes(), 6)
        return ExpertUse(layers, rows, counts.shape[1], item, packed)

    def counts(self) -> npt.NDArray[uint32]:
        """[n_layers, n_experts]."""
        import numpy as np

        flat = np.frombuffer(zlib.decompress(self.packed), f"<u{self.item_bytes}")
        return flat.reshape(len(self.layers), self.n_experts).astype(np.uint32)

    def to_bytes(self) -> bytes:
        """What a store keeps: some 13 KB for an answer of a model with 94 x 128 experts."""
        n = len(self.layers)
        head = _HEAD.pack(_MAGIC, n, self.n_experts, self.item_bytes, len(self.packed))
        return head + struct.pack(f"<{n}H{n}I", *self.layers, *self.rows) + self.packed

    @staticmethod
    def from_bytes(data: bytes) -> ExpertUse:
        """The reverse of `to_bytes`.

        Raises:
            InvalidRequest: these are no such bytes.
        """
        try:
            magic, n, n_experts, item, size = _HEAD.unpack_from(data)
            values = struct.unpack_from(f"<{n}H{n}I", data, _HEAD.size)
            packed = data[_HEAD.size + 6 * n :]
            whole = zlib.decompressobj().decompress(packed, n * n_experts * item + 1)
        except (struct.error, zlib.error) as error:
            raise InvalidRequest(f"these are no counts of experts: {error}") from error
        if magic != _MAGIC or item not in (1, 2, 4) or len(packed) != size or len(whole) != n * n_experts * item:
            raise InvalidRequest("these are no counts of experts")
        return ExpertUse(values[:n], values[n:], n_experts, item, packed)
