"""How long a step takes under a placement: the units of each layer one after another, what may overlap, and what must cross.

A layer's time depends on the devices of its units and on where its input lies, so that layers are looked up once they are known.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.arch.spec import ModelSpec, MoeFfn
from engine.arch.units import UnitId, UnitKind
from engine.estimate.heat import Heat
from engine.estimate.roofline import Part, Roofline
from engine.estimate.work import ModelWork, Style
from engine.placement.placement import Device, Gpu, Numa, Placement, Pool
from engine.placement.spread import Spread
from engine.placement.streaming import LEAST_ROWS
from engine.program.fuse import Phase

_PARTS: tuple[UnitKind, ...] = ("mixer", "ffn", "shared", "experts")
_Served = tuple[float, float]
"""Of a pool: its share of a layer's experts, and of their turns; none: 0, 0."""
_NONE: _Served = 0.0, 0.0
_Key = tuple[int, tuple[Device | None, ...], Device, Phase, int, _Served, tuple[Spread | None, ...]]


@dataclass(frozen=True, slots=True)
class StepTime:
    """seconds of a step; busy, bounds: by device, the seconds that it works and those that reading alone takes; crossing: of the
    hand-overs. parts: by device, what its time goes to."""

    seconds: float
    parts: dict[Device, Part]
    crossing: float

    def busiest(self) -> Device:
        """The device that works longest."""
        return max(self.parts, key=lambda device: self.parts[device].seconds)


@dataclass(frozen=True, slots=True)
class _Layer:
    seconds: float
    parts: tuple[tuple[Device, Part], ...]
    crossing: float
    leaves: Device


class Speed:
    """Step times of one model on one machine."""

    def __init__(self, spec: ModelSpec, work: ModelWork, roofline: Roofline, heat: Heat | None = None, *, streams: bool) -> None:
        """heat: of experts, None: nobody counted. streams: whether long chunks of prompts may bring the experts of the CPU to a
        GPU."""
        self._heat = heat or Heat()
        self._spec, self._work, self._roofline = spec, work, roofline
        self._streams = streams and work.rows >= LEAST_ROWS
        self._ids = [tuple(UnitId(kind, i) for kind in _PARTS) for i in range(spec.n_layers)]
        self._known: dict[_Key, _Layer] = {}
        self._units: dict[tuple[UnitKind, int, Device, Phase, int], Part] = {}

    def unit(self, unit: UnitId, device: Device, phase: Phase = "decode", depth: int = 0) -> Part:
        """What a unit takes on a device."""
        shape = -1 if unit.layer < 0 else self._work.shapes[unit.layer]
        return self._part(unit.kind, unit.layer, shape, device, phase, depth)

    def step(self, placement: Placement, phase: Phase, depth: int = 0) -> StepTime:
        """A decode step of one row behind `depth` tokens, or a chunk of a prompt."""
        at = placement.device_of(UnitId("embed"))
        found = self._part("embed", -1, -1, at, phase, depth)
        parts: dict[Device, Part] = {at: found}
        seconds, crossing = self._roofline.calibration.step_us * 1e-6 + found.seconds, 0.0
        where = placement.places.get
        pools = placement.pools_that_count
        alike: dict[_Key, int] = {}
        for i, (ids, shape) in enumerate(zip(self._ids, self._work.shapes, strict=True)):
            pool = pools.get(i)
            spreads = tuple(map(placement.spread_of, ids)) if placement.spreads else ()
            key = (shape, tuple(map(where, ids)), at, phase, depth, _NONE if pool is None else self._served(pool), spreads)
            if key not in self._known:
                self._known[key] = self._layer(i, *key)
            alike[key] = alike.get(key, 0) + 1
            at = self._known[key].leaves
        for key, n in alike.items():
            layer = self._known[key]
            seconds += n * layer.seconds
            crossing += n * layer.crossing
            for device, part in layer.parts:
                parts[device] = parts.get(device, Part()) + part.part(n)
        head, spread = placement.device_of(UnitId("head")), placement.spread_of(UnitId("head"))
        dealt = self._dealt("head", -1, -1, head, phase, depth, spread)
        for device, part in dealt:
            parts[device] = parts.get(device, Part()) + part
        over = self._cross(at, head, 1)
        return StepTime(seconds + max(part.seconds for _, part in dealt) + over, parts, crossing + over)

    def _layer(
        self,
        i: int,
        shape: int,
        devices: tuple[Device | None, ...],
        at: Device,
        phase: Phase,
        depth: int,
        served: _Served,
        spreads: tuple[Spread | None, ...],
    ) -> _Layer:
        mixer, ffn, shared, experts = devices
        spread = dict(zip(_PARTS, spreads, strict=False))
        assert mixer is not None and ffn is not None
        rows = self._work.rows if phase == "prefill" else 1
        parts: list[tuple[Device, Part]] = []

        def take(kind: UnitKind, device: Device) -> float:
            dealt = self._dealt(kind, i, shape, device, phase, depth, spread.get(kind))
            parts.extend(dealt)
            return max(part.seconds for _, part in dealt)

        seconds = crossing = self._cross(at, mixer, rows)
        seconds += take("mixer", mixer)
        over = self._cross(mixer, ffn, rows)
        crossing += over
        seconds += over + take("ffn", ffn)
        if experts is not None:
            beside = 0.0
            if shared is not None:
                beside = take("shared", shared) + 2 * self._cross(ffn, shared, rows)
            far = 2 * self._cross(ffn, experts, rows)
            there = (i, shape, ffn, experts, phase, depth, spread.get("experts"))
            routed = self._pooled(*there, served, parts) if served[0] else self._routed(*there, parts)
            crossing += far
            apart = shared is not None and shared != experts and isinstance(shared, Gpu) != isinstance(experts, Gpu)
            seconds += max(beside, routed + far) if apart else beside + routed + far
        return _Layer(seconds, tuple(parts), crossing, ffn)

    def _dealt(
        self, kind: UnitKind, layer: int, shape: int, device: Device, phase: Phase, depth: int, spread: Spread | None
    ) -> list[tuple[Device, Part]]:
        """What each node does of a unit that is spread over several, side by side; or the one device that has it."""
        if spread is None:
            return [(device, self._part(kind, layer, shape, device, phase, depth))]
        shares = zip(map(Numa, spread.nodes), spread.parts, strict=True)
        return [(node, self._part(kind, layer, shape, node, phase, depth).part(share)) for node, share in shares]

    def _routed(
        self,
        i: int,
        shape: int,
        ffn: Device,
        experts: Device,
        phase: Phase,
        depth: int,
        spread: Spread | None,
        parts: list[tuple[Device, Part]],
    ) -> float:
        """The experts of a layer, where they lie or, in a long chunk, on the GPU of the router while the next ones arrive."""
        dealt = self._dealt("experts", i, shape, experts, phase, depth, spread)
        seconds = max(part.seconds for _, part in dealt)
        if phase == "prefill" and self._streams and isinstance(ffn, Gpu) and isinstance(experts, Numa):
            there = self._part("experts", i, shape, ffn, phase, depth)
            nbytes = sum(op.nbytes for op in self._work.of(UnitId("experts", i), phase, "gpu"))
            brought = Part(read=max(there.seconds, nbytes / (self._roofline.gpu(ffn).to_gbps * 1e9)))
            if brought.seconds < seconds:
                parts.append((ffn, brought))
                return brought.seconds
        parts += dealt
        return seconds

    def _pooled(
        self,
        i: int,
        shape: int,
        ffn: Device,
        experts: Device,
        phase: Phase,
        depth: int,
        spread: Spread | None,
        served: _Served,
        parts: list[tuple[Device, Part]],
    ) -> float:
        """Experts of which some have copies on the GPU of the router: both sides compute at once. In a long chunk each
        reads all that it has, and all may pass through the GPU, as without a pool."""
        share, hits = served
        read = hits if phase == "decode" else share
        there = _share(self._part("experts", i, shape, ffn, phase, depth), read, hits)
        dealt = self._dealt("experts", i, shape, experts, phase, depth, spread)
        here = [(device, _share(part, 1.0 - read, 1.0 - hits)) for device, part in dealt]
        seconds = max(there.seconds, *(part.seconds for _, part in here))
        if phase == "prefill":
            passing: list[tuple[Device, Part]] = []
            streamed = self._routed(i, shape, ffn, experts, phase, depth, spread, passing)
            if streamed < seconds:
                parts += passing
                return streamed
        parts += [(ffn, there), *here]
        return seconds

    def _served(self, pool: Pool) -> _Served:
        block = self._spec.blocks[pool.layer].ffn
        return (
            (len(pool.experts) / block.n_experts, self._heat.hits(pool, block.n_experts)) if isinstance(block, MoeFfn) else _NONE
        )

    def _part(self, kind: UnitKind, layer: int, shape: int, device: Device, phase: Phase, depth: int) -> Part:
        key = kind, shape, device, phase, depth
        found = self._units.get(key)
        if found is None:
            style: Style = "gpu" if isinstance(device, Gpu) else "cpu"
            work = self._work.of(UnitId(kind, layer), phase, style)
            rows = self._work.rows if phase == "prefill" else 1
            found = self._units[key] = self._roofline.unit(work, device, phase, depth, rows)
        return found

    def _cross(self, source: Device, target: Device, rows: int) -> float:
        """Rows of the residual stream from one device to another."""
        if source == target or (isinstance(source, Numa) and isinstance(target, Numa)):
            return 0.0  # workers of all nodes share buffers
        rates = [self._roofline.gpu(one) for one in (source, target) if isinstance(one, Gpu)]
        link = min((min(one.to_gbps, one.from_gbps) for one in rates), default=self._roofline.node(0).limit)
        return self._roofline.calibration.exchange_us * 1e-6 + 4.0 * rows * self._spec.n_embd / (link * 1e9)


def _share(part: Part, read: float, multiply: float) -> Part:
    """A part of the experts, by bytes and by turns: launches and meetings come whole."""
    return Part(read * part.read, multiply * part.multiply, part.fixed, read * part.bound)
