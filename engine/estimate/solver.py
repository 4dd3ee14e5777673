"""The placement that is fastest of those that fit: what loading would choose, and what it may be changed to for more speed.

A model is measured by a prompt and an answer of usual length. First whole layers and then experts fill the GPUs, as without a
solver. What room is left takes what saves most time a byte, and then pools of experts. Nothing is lowered on the way but layers
by themselves, so that many placements can be weighed in a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.arch.units import UnitId
from engine.errors import PlacementError
from engine.estimate.automatic import moved, roomy, spare
from engine.estimate.memory import Estimate
from engine.estimate.pool_filler import PoolFiller
from engine.hardware.machine import Machine
from engine.placement.placement import Device, Gpu, Numa, Placement

BUDGET_S = 0.3
"""For improvements; a first choice takes as long again on large models."""
FASTER, CLEARLY = 0.98, 0.85
"""Of the time without: what pools must save to be made, and to be made in place of whole layers."""
PROMPT, ANSWER = 512, 256
"""Tokens of the conversation that decides."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What the solver asks. bytes_of: of a placement; seconds_of: of the conversation; unit_seconds: of a unit of a token on a
    device; sizes: bytes of units, to weigh them against each other; unreadable: units that GPUs cannot compute; filler: of what
    room is left, with pools of experts."""

    bytes_of: Callable[[Placement], Estimate]
    seconds_of: Callable[[Placement], float]
    unit_seconds: Callable[[UnitId, Device], float]
    sizes: dict[UnitId, int]
    unreadable: frozenset[UnitId]
    filler: PoolFiller


def solve(start: Placement, home: Placement, machine: Machine, judged: Judged) -> Placement:
    """The best that is found from what loading would choose and from everything in memory.

    Raises:
        PlacementError: nothing fits, with the arithmetic.
    """
    tried = list(dict.fromkeys((start, home)))
    fitting = [one for one in tried if judged.bytes_of(one).fits]
    if not fitting:
        raise PlacementError(arithmetic(judged.bytes_of(tried[0]), machine))
    whole = _improved(min(fitting, key=judged.seconds_of), machine, judged)
    return _with_pools(whole, home, judged)


def _with_pools(whole: Placement, home: Placement, judged: Judged) -> Placement:
    """With pools in what room is left. Where counts tell experts apart, pools of all layers may take the room of whole layers,
    if that is clearly faster: counts are of one conversation, the next may be another."""
    best, filler = whole, judged.filler
    filled = filler.filled(whole)
    if filled.pools and judged.seconds_of(filled) < FASTER * judged.seconds_of(whole):
        best = filled
    if filler.heat.known:
        back = {unit: home.device_of(unit) for unit, where in whole.units if unit.kind == "experts" and isinstance(where, Gpu)}
        pooled = filler.filled(moved(whole, back)) if back else whole
        if pooled.pools and judged.bytes_of(pooled).fits and judged.seconds_of(pooled) < CLEARLY * judged.seconds_of(best):
            best = pooled
    return best


def _improved(placement: Placement, machine: Machine, judged: Judged) -> Placement:
    """With as much more on the GPUs as saves time and fits."""
    ends = time.monotonic() + BUDGET_S
    best = judged.seconds_of(placement)
    for unit, gpu in _candidates(placement, machine, judged):
        if time.monotonic() > ends:
            break
        room = judged.bytes_of(placement)
        if spare(room.of(gpu)) < judged.sizes[unit]:
            continue
        there = moved(placement, {unit: gpu})
        seconds = judged.seconds_of(there)
        if seconds < best:
            found = judged.bytes_of(there)
            if found.fits and roomy(found):
                placement, best = there, seconds
    return placement


def _candidates(placement: Placement, machine: Machine, judged: Judged) -> Iterator[tuple[UnitId, Gpu]]:
    """What lies in memory and might lie on a GPU: what saves most time a byte first, the GPU of its layer before others."""
    gpus = [Gpu(one.index) for one in machine.gpus]
    gains = []
    for unit, where in placement.units:
        movable = unit.kind in ("experts", "shared", "ffn", "head") and isinstance(where, Numa) and unit not in judged.unreadable
        for gpu in gpus if movable else ():
            saved = judged.unit_seconds(unit, where) - judged.unit_seconds(unit, gpu)
            if saved > 0:
                own = placement.places.get(UnitId("ffn", unit.layer)) == gpu
                gains.append((saved / max(1, judged.sizes[unit]), own, unit, gpu))
    gains.sort(key=lambda one: (-one[0], not one[1], -one[2].layer))
    yield from ((unit, gpu) for _, _, unit, gpu in gains)


def arithmetic(estimate: Estimate, machine: Machine) -> str:
    """Why a model does not fit on a machine, in figures."""
    weights = sum(one.weights + one.derived for one in estimate.devices)
    caches = sum(one.kv + one.kept_windows + one.state for one in estimate.devices)
    rest = sum(one.used for one in estimate.devices) - weights - caches
    gpus = sum(one.capacity for one in machine.gpus)
    there = gpus + machine.ram_free
    cards = f"{gpus / 1e9:.1f} GB of {len(machine.gpus)} GPUs and " if machine.gpus else ""
    missing = max(sum(one.over for one in estimate.devices), weights + caches + rest - there)
    return (
        f"this model does not fit: {weights / 1e9:.1f} GB of weights, {caches / 1e9:.1f} GB of cache for {estimate.n_ctx} tokens "
        f"and {rest / 1e9:.1f} GB of buffers are more than the {cards}{machine.ram_free / 1e9:.1f} GB of memory that are free; "
        f"{missing / 1e9:.1f} GB are missing. Get it in a smaller format or use a shorter context"
    )
