"""What really lies where, by owner: the ledger of a loaded model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from engine.placement.placement import Device

Owner = Literal["weights", "derived", "kv", "kept windows", "state", "workspace"]
"""`kv`: what one sequence of the whole context takes; `kept windows`: room for other windows than its own; `state`: slots for
the states of recurrent layers, those of snapshots among them."""


@dataclass(frozen=True, slots=True)
class Holding:
    """nbytes of one owner on a device. mapped: pages of the file's own cache, given up by the system when it needs them."""

    device: Device
    owner: Owner
    nbytes: int
    mapped: bool = False


@dataclass(frozen=True, slots=True)
class Residency:
    """holdings: everything the model holds; weight_bytes_per_token: bytes of weights that one decoded token reads."""

    holdings: tuple[Holding, ...]
    weight_bytes_per_token: int

    def nbytes(self, owner: Owner | None = None) -> int:
        """Bytes of one owner, or of all."""
        return sum(holding.nbytes for holding in self.holdings if owner is None or holding.owner == owner)

    def owned(self, nbytes: int) -> Residency:
        """The same with nbytes of the mapped weights in memory of our own."""
        if not nbytes:
            return self
        mapped = next(one for one in self.holdings if one.owner == "weights" and one.mapped)
        nbytes = min(nbytes, mapped.nbytes)
        parts = (replace(mapped, nbytes=mapped.nbytes - nbytes), replace(mapped, nbytes=nbytes, mapped=False))
        others = tuple(one for one in self.holdings if one is not mapped)
        return replace(self, holdings=tuple(one for one in parts if one.nbytes) + others)

    def beside(self, device: Device, nbytes: int) -> Residency:
        """The same with nbytes of weights in the machine's memory that nobody reads any more and that are about to go."""
        if not nbytes:
            return self
        return replace(self, holdings=(*self.holdings, Holding(device, "weights", nbytes)))
