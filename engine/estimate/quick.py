"""The bytes of a placement in a few milliseconds: `Estimator`'s figures, from sums that were made once for each unit.

All but working memory is the same to the byte. Of working memory each layer is known by itself (`engine.estimate.fragments`);
what stays alive beyond its layer, rows of the residual stream on their way between devices, is added as lanes of usual placements
have it. Placements that were refined are known exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.arch.cache_groups import windows
from engine.arch.spec import ModelSpec
from engine.arch.units import UnitId, UnitKind
from engine.estimate.fragments import PLACED, Fragment, Fragments, Kind, Pattern
from engine.estimate.kernels import kernel_bytes
from engine.estimate.memory import LIBRARY_BYTES, LOGIT_ROWS, DeviceBytes, Estimate, Estimator
from engine.estimate.sums import Sums, UnitSums
from engine.estimate.work import Shape
from engine.placement.options import KvType
from engine.placement.placement import Device, Gpu, Numa, Placement, Pool
from engine.placement.spread import Spread
from engine.placement.streaming import aligned
from engine.program.lower import DECODE_BUCKETS
from kernels_pyx.executor import act_row_bytes

STAYS = {"gpu": 1, "node": 1, "node between others": 4, "scattered gpu": 6, "scattered node": 12}
"""How often a lane keeps the rows of the residual stream beside what a layer needs, at most, in usual placements: what a node
sends must stay until it is known to have been read. Scattered placements keep more."""
SCATTERED = 16
"""Ways in which the units of a layer share devices, from which on a placement is none of a person's or solver's making."""


KNOWN = 256
"""Refined placements that are remembered."""

_Key = tuple[tuple[tuple[UnitId, Device], ...], KvType, KvType, int, tuple[Pool, ...], tuple[tuple[UnitId, Spread], ...]]


@dataclass(slots=True)
class _Lanes:
    """Of one device, over the layers that are on it: see `Fragment`. between: whether rows come from or go to other devices."""

    arena: dict[Kind, int] = field(default_factory=dict)
    worker: dict[Kind, int] = field(default_factory=dict)
    kernels: dict[Kind, dict[str, int]] = field(default_factory=dict)
    crossing: int = 0
    between: bool = False

    def add(self, kind: Kind, one: Fragment) -> None:
        """Another layer."""
        self.arena[kind] = max(one.arena, self.arena.get(kind, 0))
        self.worker[kind] = max(one.worker, self.worker.get(kind, 0))
        self.crossing = max(one.crossing, self.crossing)
        kept = self.kernels.setdefault(kind, {})
        for name, nbytes in one.kernels:
            kept[name] = max(nbytes, kept.get(name, 0))


@dataclass(slots=True)
class _Latest:
    """What is the same for all chunks of prompts, of the placement asked about last. beside: see `Estimator.streamed`, once
    somebody asked; sums: without and with a ring for experts."""

    placement: Placement
    lost: Mapping[Device, int]
    beside: list[Placement | None] = field(default_factory=list)
    sums: dict[bool, Mapping[Device, Sums]] = field(default_factory=dict)


class QuickBytes:
    """Estimates of one model with one set of options for one machine."""

    def __init__(self, spec: ModelSpec, estimator: Estimator, beside: QuickBytes | None = None) -> None:
        """beside: of the same model with another chunk of prompts, for what both lower."""
        self._spec, self._full = spec, estimator
        self._fragments: Fragments = (
            beside._fragments
            if beside is not None
            else Fragments(spec, estimator.tensors, estimator.types, estimator.n_ctx, f32=estimator.f32)
        )
        self._ids = [tuple(UnitId(kind, i) for kind in PLACED) for i in range(spec.n_layers)]
        # Of a longer chunk all but working memory is the same, where no layer's cache depends on it.
        alike = beside if beside is not None and all(one is None for one in windows(spec)) else None
        self.sums: UnitSums = UnitSums(spec, estimator) if alike is None else alike.sums
        self._latest: list[_Latest] = [] if alike is None else alike._latest
        self._exact: dict[_Key, Estimate] = {}
        self._streamed: tuple[Placement, Estimate | None] | None = None

    def estimate(self, placement: Placement) -> tuple[Estimate, bool]:
        """What the model takes under this placement, and whether working memory is exact."""
        known = self._exact.get(_key(placement))
        if known is not None:
            return known, True
        streaming = self.streaming(placement)
        if streaming is not None:
            return streaming, False
        return self._estimate(placement, None), False

    def streaming(self, placement: Placement) -> Estimate | None:
        """What it takes with a ring for experts on their way; None: none are, or there is no room for it."""
        if self._streamed is None or self._streamed[0] is not placement:
            beside = self.streamed(placement)
            found = None if beside is None else self._estimate(placement, beside)
            self._streamed = placement, found if found is not None and found.fits else None
        return self._streamed[1]

    def streamed(self, placement: Placement) -> Placement | None:
        """See `Estimator.streamed`."""
        if not self._full.streams:
            return None
        latest = self._of(placement)
        if not latest.beside:
            latest.beside.append(self._full.streamed(placement))
        return latest.beside[0]

    def _of(self, placement: Placement) -> _Latest:
        if not self._latest or self._latest[0].placement is not placement:
            self._latest[:] = [_Latest(placement, self._full.lost_on_gpus(placement))]
        return self._latest[0]

    def refine(self, placement: Placement) -> Estimate:
        """The same from lowered plans, known from then on. Raises: PlacementError, see `lower`."""
        found = self._full.estimate(placement)
        while len(self._exact) >= KNOWN:
            self._exact.pop(next(iter(self._exact)))
        self._exact[_key(placement)] = found
        return found

    def prepare(self, placement: Placement) -> None:
        """Lowers the layers that one unit elsewhere would make, or all units, or all but the experts."""
        machine = self._full.machine
        devices: tuple[Device, ...] = (
            Numa(machine.nodes[0].node),
            *(Gpu(one.index) for one in machine.gpus[:3]),
        )
        home = Numa(machine.nodes[0].node)
        places: dict[UnitId, Device] = {u: home if isinstance(one, Numa) else one for u, one in placement.places.items()}
        wheres = [tuple(places.get(unit) for unit in ids) for ids in self._ids]
        ways = (*((i,) for i in range(len(PLACED))), (0, 1, 2), (0, 1, 2, 3))
        for shape, where in dict.fromkeys(zip(self._fragments.shapes, wheres, strict=True)):
            for way in ways:
                for device in devices:
                    changed = tuple(device if i in way and one is not None else one for i, one in enumerate(where))
                    _, pattern = _pattern(changed)
                    for kind in self._full.kinds:
                        self._fragments.of(shape, pattern, kind)

    def _estimate(self, placement: Placement, beside: Placement | None) -> Estimate:
        machine = self._full.machine
        here: set[Device] = {*(Numa(one.node) for one in machine.nodes), *(Gpu(one.index) for one in machine.gpus)}
        used = set(placement.devices)
        latest, streamed = self._of(placement), beside is not None
        if streamed not in latest.sums:
            latest.sums[streamed] = self.sums.of(placement, beside)
        sums, lost = latest.sums[streamed], latest.lost
        lanes, scattered = self._lanes(placement, beside)
        n_nodes = sum(isinstance(one, Numa) for one in used)
        devices = []
        for device in sorted(here | used):
            weights, derived, kv, kept, state, passing = sums.get(device, (0,) * 6)
            lane = lanes.get(device)
            devices.append(
                DeviceBytes(
                    device=device,
                    weights=weights,
                    derived=derived if device in used else 0,
                    kv=kv,
                    kept_windows=kept,
                    state=state,
                    workspace=passing + (0 if lane is None else self._arena(device, lane, scattered=scattered)),
                    other=self._other(device, placement, lane) + lost.get(device, 0) if device in used else 0,
                    capacity=self._full.capacity(device, n_nodes),
                )
            )
        return Estimate(tuple(devices), self._full.n_ctx)

    def _lanes(self, placement: Placement, beside: Placement | None) -> tuple[dict[Device, _Lanes], bool]:
        """The lanes of all plans, by device, and whether the placement is scattered."""
        found: dict[Device, _Lanes] = {}
        n_ways = self._collect(placement, self._full.kinds, found)
        if beside is not None:
            # A plan more, whose workers have memory of their own.
            phase, rows = self._full.kinds[-1]
            self._collect(beside, ((phase, rows),), found, extra=True)
        return found, n_ways >= SCATTERED

    def _collect(self, placement: Placement, kinds: tuple[Kind, ...], found: dict[Device, _Lanes], *, extra: bool = False) -> int:
        """Adds the lanes of plans; how many kinds of layers there are, by shape and devices."""
        home = placement.home  # whose lane is that of all nodes
        places = placement.places
        if len(placement.nodes) > 1:
            places = {unit: home if isinstance(one, Numa) else one for unit, one in places.items()}
        embed, head = places[UnitId("embed")], places[UnitId("head")]
        seen: set[tuple[Shape, tuple[Device | None, ...], int]] = set()
        over: dict[tuple[Device, Device], None] = {}  # from where to where rows go
        before = embed
        for shape, ids in zip(self._fragments.shapes, self._ids, strict=True):
            where = tuple(map(places.get, ids))
            mixer, ffn = where[0], where[1]
            assert mixer is not None and ffn is not None
            over[before, mixer] = None
            before = ffn
            pool = placement.pool_of(ids[0].layer) if placement.pools else None
            n_pooled = 0 if pool is None else len(pool.experts)
            if (shape, where, n_pooled) in seen:
                continue
            seen.add((shape, where, n_pooled))
            numbers, pattern = _pattern(where)
            if len(numbers) > 1:
                for one in numbers:
                    found.setdefault(one, _Lanes()).between = True
            for kind in kinds:
                parts = self._fragments.of(shape, pattern, kind, n_pooled)
                label = _label(kind, extra)
                for device, number in numbers.items():
                    if number in parts:
                        found.setdefault(device, _Lanes()).add(label, parts[number])
        over[before, head] = None
        for source, target in over:
            if source != target:
                self._between(found, source, target, kinds)
        for kind in kinds:
            label = _label(kind, extra)
            ends: tuple[tuple[Device, UnitKind], ...] = ((embed, "embed"), (head, "head"))
            for device, unit in ends:
                part = self._fragments.ends(unit, 1 if isinstance(device, Gpu) else -1, kind)
                found.setdefault(device, _Lanes()).add(label, part)
        return len(seen)

    def _between(self, found: dict[Device, _Lanes], source: Device, target: Device, kinds: tuple[Kind, ...]) -> None:
        """Rows of the residual stream go from one device to another, on a GPU by way of a buffer if the other is none."""
        nbytes = max(rows for _, rows in kinds) * act_row_bytes(0, self._spec.n_embd)
        for one, other in ((source, target), (target, source)):
            lanes = found.setdefault(one, _Lanes())
            lanes.between = True
            if isinstance(one, Gpu) and not isinstance(other, Gpu):
                lanes.crossing = max(nbytes, lanes.crossing)

    def _arena(self, device: Device, lane: _Lanes, *, scattered: bool) -> int:
        width = 4 * self._spec.n_embd
        kind = "gpu" if isinstance(device, Gpu) else "node between others" if lane.between else "node"
        if scattered:
            kind = f"scattered {kind.split()[0]}"
        more = STAYS[kind]
        return lane.crossing + max(nbytes + more * aligned(abs(rows) * width) for (_, rows), nbytes in lane.arena.items())

    def _other(self, device: Device, placement: Placement, lane: _Lanes | None) -> int:
        if not isinstance(device, Gpu):
            if lane is None:
                return 0
            each = sum(size * (len(DECODE_BUCKETS) if kind[0] == "decode" else 1) for kind, size in lane.worker.items())
            return placement.workers.n_workers * each
        logits = 4 * self._spec.n_vocab * LOGIT_ROWS if placement.device_of(UnitId("head")) == device else 0
        if any(one.emulated for one in self._full.machine.gpus if one.index == device.index):
            return logits
        kept = 0 if lane is None else kernel_bytes(lane.kernels.values())
        return self._full.context_bytes + LIBRARY_BYTES + logits + kept


def _label(kind: Kind, extra: bool) -> Kind:
    """What lanes of a plan are called: those of one more plan of the same kind have memory for workers of their own."""
    return (kind[0], -kind[1]) if extra else kind


def _key(placement: Placement) -> _Key:
    return placement.units, placement.k_type, placement.v_type, placement.workers.n_workers, placement.pools, placement.spreads


def _pattern(where: tuple[Device | None, ...]) -> tuple[dict[Device, int], Pattern]:
    """The numbers of the devices of a layer, and its pattern of them."""
    numbers: dict[Device, int] = {}
    n_gpus = 0
    for device in where:
        if device is None or device in numbers:
            continue
        if isinstance(device, Gpu):
            n_gpus += 1
            numbers[device] = n_gpus
        else:
            numbers[device] = -1
    return numbers, tuple(0 if device is None else numbers[device] for device in where)
