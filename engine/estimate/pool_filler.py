"""Pools of experts in the room that whole layers leave on GPUs: the hottest of all layers, or as many of each where none is known
to be hotter than others.

The experts that have copies are computed by the GPU of their layer's router, beside the others in memory, so that a pool pays
where what it serves would hold memory up longest. What room pools really take is judged as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from engine.arch.units import UnitId
from engine.estimate.automatic import roomy, spare
from engine.estimate.heat import Heat
from engine.estimate.memory import Estimate
from engine.placement.placement import Device, Gpu, Numa, Placement, Pool

LEAST_SHARE = 1 / 64
"""Of a layer's experts: smaller pools serve too little for another launch of kernels and another meeting."""
TRIES = 5
"""Judgements, each with less room than the one before."""


@dataclass(frozen=True, slots=True)
class ExpertSet:
    """The experts of a layer. slot_bytes: of one of them on a GPU."""

    n_experts: int
    slot_bytes: int


@dataclass(frozen=True, slots=True)
class PoolFiller:
    """sets: by layer; bytes_of: what a placement takes; unit_seconds: of a unit of a token on a device."""

    sets: Mapping[int, ExpertSet]
    heat: Heat
    bytes_of: Callable[[Placement], Estimate]
    unit_seconds: Callable[[UnitId, Device], float]

    def filled(self, placement: Placement) -> Placement:
        """The placement with pools in all the room that its GPUs have left; without, where there is none for any."""
        bare = replace(placement, pools=())
        there = self._layers(bare)
        found = self.bytes_of(bare)
        rooms = {gpu: spare(found.of(gpu)) for gpu in there}
        for _ in range(TRIES):
            pools = tuple(pool for gpu, layers in there.items() for pool in self._pools(gpu, layers, rooms[gpu]))
            tried = replace(bare, pools=tuple(sorted(pools, key=lambda pool: pool.layer)))
            if not pools:
                return bare
            found = self.bytes_of(tried)
            if found.fits and roomy(found):
                return tried
            for gpu in rooms:
                rooms[gpu] += min(0, spare(found.of(gpu)))
        return bare

    def _layers(self, placement: Placement) -> dict[Gpu, list[int]]:
        """By GPU, the layers that can have pools there: their router is, their experts lie in memory."""
        found: dict[Gpu, list[int]] = {}
        places = placement.places
        for layer in self.sets:
            router = places.get(UnitId("ffn", layer))
            if isinstance(router, Gpu) and isinstance(places.get(UnitId("experts", layer)), Numa):
                found.setdefault(router, []).append(layer)
        return found

    def _pools(self, gpu: Gpu, layers: Iterable[int], room: int) -> list[Pool]:
        chosen = self._hottest(gpu, self._worth(layers, room), room) if self.heat.known else self._evenly(layers, room)
        return [
            Pool(layer, gpu, tuple(sorted(experts))) for layer, experts in chosen.items() if len(experts) >= self._least(layer)
        ]

    def _least(self, layer: int) -> int:
        return max(1, int(LEAST_SHARE * self.sets[layer].n_experts))

    def _worth(self, layers: Iterable[int], room: int) -> list[int]:
        """The layers that a pool of the least size serves best, as many as there is room for."""

        def served(layer: int) -> float:
            return sum(share for _, share in self.heat.ranked(layer, self.sets[layer].n_experts)[: self._least(layer)])

        found: list[int] = []
        for layer in sorted(layers, key=lambda one: (-served(one), -one)):
            room -= self._least(layer) * self.sets[layer].slot_bytes
            if room < 0:
                break
            found.append(layer)
        return found

    def _evenly(self, layers: Iterable[int], room: int) -> dict[int, list[int]]:
        """As large a share of each layer as there is room for; the last layers alone where that is next to nothing."""
        here = list(layers)
        while here:
            share = room / sum(self.sets[one].n_experts * self.sets[one].slot_bytes for one in here)
            if share >= LEAST_SHARE:
                return {
                    one: list(range(min(int(share * self.sets[one].n_experts), self.sets[one].n_experts - 1))) for one in here
                }
            here = here[-(len(here) // 2) :] if len(here) > 1 else []
        return {}

    def _hottest(self, gpu: Gpu, layers: Iterable[int], room: int) -> dict[int, list[int]]:
        """The experts that save most time a byte, of all layers of a GPU; no layer's until its GPU takes as long as memory."""
        gains: list[tuple[float, int, int]] = []
        for layer in layers:
            one, unit = self.sets[layer], UnitId("experts", layer)
            cpu, there = self.unit_seconds(unit, Numa(0)), self.unit_seconds(unit, gpu)
            served = 0.0
            for expert, share in self.heat.ranked(layer, one.n_experts)[: one.n_experts - 1]:
                served += share
                if not share or served * there > (1.0 - served + share) * cpu:
                    break
                gains.append((share * cpu / one.slot_bytes, layer, expert))
        gains.sort(key=lambda gain: (-gain[0], -gain[1], gain[2]))
        found: dict[int, list[int]] = {}
        for _, layer, expert in gains:
            nbytes = self.sets[layer].slot_bytes
            if nbytes <= room:
                room -= nbytes
                found.setdefault(layer, []).append(expert)
        return found
