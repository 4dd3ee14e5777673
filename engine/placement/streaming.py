"""Where a long chunk of a prompt is computed when weights may travel: experts of the CPU on the GPU of their layer's router.

This is a placement of one kind of step, not of the model: weights stay where they lie and pass through a ring on the GPU, see
`engine.runtime.gpu_stream`. Estimates count with the same figures.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from engine.arch.units import UnitId
from engine.placement.options import LoadOptions
from engine.placement.placement import Gpu, Numa, Placement

RING_LAYERS = 2
"""Layers on a GPU at once: one is multiplied with, one arrives."""
RING_ALIGN = 256
CHUNK_BYTES, CHUNKS = 8 << 20, 8
"""Pinned memory a GPU: the largest chunks, and how many are filled ahead or on their way."""
RINGS = ((8 << 20, 8), (4 << 20, 16), (4 << 20, 8), (2 << 20, 20), (2 << 20, 12))
"""(bytes of a chunk, chunks) that are tried at load. A ring that stays in the processor's cache spares its memory three of four
accesses; chunks that are too small leave the bus waiting for who sends them."""
LEAST_ROWS = 256
"""Chunks of prompts that can have fewer rows at most are not worth a plan and a ring of their own."""


def placement_for_prefill(placement: Placement, unreadable: frozenset[UnitId]) -> Placement | None:
    """The placement with the experts of the CPU on the GPU of their router; None where there are none to move.

    unreadable: units with weights that GPUs do not read, which stay.
    """
    places = placement.places
    moved = {
        unit: home
        for unit, where in placement.units
        if unit.kind == "experts" and isinstance(where, Numa) and isinstance(home := places.get(UnitId("ffn", unit.layer)), Gpu)
    }
    units = tuple((unit, where if unit in unreadable else moved.get(unit, where)) for unit, where in placement.units)
    return None if units == placement.units else replace(placement, units=units)


def streams(options: LoadOptions, max_rows: int, *, emulated: bool) -> bool:
    """Whether chunks of up to max_rows rows may be computed so at all. emulated: the GPUs are played by the CPU itself."""
    if options.stream_experts == "auto":
        return max_rows >= LEAST_ROWS and not emulated
    return options.stream_experts == "on"


def ring_bytes(layers: Iterable[Iterable[int]]) -> int:
    """What the ring of a GPU takes. layers: of each layer whose experts pass through it, the bytes of its tensors."""
    return RING_LAYERS * max((sum(map(aligned, tensors)) for tensors in layers), default=0)


def aligned(nbytes: int) -> int:
    """The room of a tensor of nbytes."""
    return -(-nbytes // RING_ALIGN) * RING_ALIGN
