"""What torch's allocator takes of a GPU beyond what is asked of it: large pieces are rounded up to 2 MiB, small ones share
segments of as much. Each unit's weights are one piece, and so is each layer's cache or state; vectors and derived weights are
pieces of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.arch.spec import Mla, ModelSpec
from engine.arch.units import UnitId
from engine.estimate.derived import derived_info
from engine.gguf.info import TensorInfo
from engine.placement.placement import Device, Gpu
from engine.placement.tensors import TensorUse
from engine.quants.padding import padded_bytes

SMALL_BYTES, SMALL_ROUND, SEGMENT = 1 << 20, 512, 2 << 20
"""Up to SMALL_BYTES in multiples of SMALL_ROUND from segments, more in whole segments: as `engine.runtime.gpu` counts."""
ALIGN = 256
OTHER_PIECES = 6
"""Pieces of a device beside those of units: working memory, rows on their way, logits, tables; each may lose a segment."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """lost: of large pieces by rounding; small: what small ones take, rounded; asked: of these, what was asked for."""

    lost: int = 0
    small: int = 0
    asked: int = 0

    def __add__(self, other: Pieces) -> Pieces:
        return Pieces(self.lost + other.lost, self.small + other.small, self.asked + other.asked)


def pieces(sizes: Iterable[int]) -> Pieces:
    """Pieces of these bytes."""
    lost = small = asked = 0
    for nbytes in sizes:
        if nbytes > SMALL_BYTES:
            lost += -nbytes % SEGMENT
        else:
            small += -(-nbytes // SMALL_ROUND) * SMALL_ROUND
            asked += nbytes
    return Pieces(lost, small, asked)


def unit_pieces(
    spec: ModelSpec, uses: Iterable[TensorUse], tensors: Mapping[str, TensorInfo], caches: Mapping[int, int], *, f32: bool
) -> dict[UnitId, Pieces]:
    """By unit, were it on a GPU, but for states; a tensor that several units read is a piece of each. caches: bytes by layer."""
    rooms: dict[UnitId, int] = {}
    alone: dict[UnitId, dict[str, int]] = {}
    for use in uses:
        tensor = tensors[use.name]
        if use.use == "matrix":
            nbytes = -(-padded_bytes(tensor.type_name, tensor.nbytes) // ALIGN) * ALIGN
            rooms[use.unit] = rooms.get(use.unit, 0) + nbytes
        elif use.use in ("vector", "taps"):
            alone.setdefault(use.unit, {})[use.name] = 4 * tensor.n_elements
    found = {unit: pieces([nbytes]) for unit, nbytes in rooms.items()}
    for unit, sizes in alone.items():
        found[unit] = found.get(unit, Pieces()) + pieces(sizes.values())
    for block in spec.blocks:
        unit = UnitId("mixer", block.index)
        if isinstance(block.mixer, Mla):
            made = (derived_info(part, tensors[part.weight].type_id, f32=f32).nbytes for part in block.mixer.derived)
            found[unit] = found.get(unit, Pieces()) + pieces(made)
    return found | {UnitId("kv", layer): pieces([nbytes]) for layer, nbytes in caches.items()}


def lost_on_gpus(by_unit: Mapping[UnitId, Pieces], places: Mapping[UnitId, Device], row_bytes: int) -> dict[Device, int]:
    """Bytes that each GPU in use loses. by_unit: were the unit on a GPU; row_bytes: of the residual stream of a chunk, by
    which models that lose nothing worth counting are told from others."""
    if row_bytes <= SMALL_BYTES // 8:
        return {}
    lost: defaultdict[Device, int] = defaultdict(int)
    small: defaultdict[Device, int] = defaultdict(int)
    asked: defaultdict[Device, int] = defaultdict(int)
    for unit, device in places.items():
        if isinstance(device, Gpu):
            one = by_unit.get(unit, _NONE)
            lost[device] += one.lost
            small[device] += one.small
            asked[device] += one.asked
    return {
        device: nbytes - (-small[device] // SEGMENT) * SEGMENT - asked[device] + OTHER_PIECES * SEGMENT
        for device, nbytes in lost.items()
    }


_NONE = Pieces()
