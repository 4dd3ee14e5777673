"""Bytes of weights, derived weights, caches and states of each unit, made once, and added up by device for a placement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from engine.arch.cache_groups import groups_of
from engine.arch.spec import Mla, ModelSpec, Rope, Temperature
from engine.arch.units import UnitId
from engine.estimate.derived import derived_info
from engine.estimate.memory import GPU_ALIGN, Estimator
from engine.estimate.pools import pool_bytes
from engine.estimate.states import plan_slots, state_shapes
from engine.gguf.info import TensorInfo
from engine.placement.options import KvType
from engine.placement.placement import Device, Gpu, Numa, Placement
from engine.placement.streaming import CHUNK_BYTES, CHUNKS, RING_LAYERS, aligned
from engine.placement.tensors import Use
from engine.quants.padding import padded_bytes

Sums = tuple[int, int, int, int, int, int]
"""weights, derived, kv, kept windows, state, passing: see `DeviceBytes`; passing: of rings for experts on their way."""


_COLOURS = {"mixer": 0, "experts": 1}


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor that several units read: it lies once on each device that has one of them. Bytes on a node and on a GPU."""

    units: tuple[UnitId, ...]
    cpu: int
    gpu: int


def _undealt(placement: Placement) -> Placement:
    """What is made at load is no node's part: it lies where its unit is at home."""
    return replace(placement, spreads=()) if placement.spreads else placement


class UnitSums:
    """The sums of one model with one set of options."""

    def __init__(self, spec: ModelSpec, estimator: Estimator) -> None:
        self._spec, self._full = spec, estimator
        self._weights, self._shared_weights = self._sum_up(("matrix",), ("matrix",), self._stored)
        self._derived, self._shared_derived = self._sum_up(("taps",), ("vector", "taps"), self._as_f32)
        for block in spec.blocks:
            if isinstance(block.mixer, Mla):
                types, unit = estimator.types, UnitId("mixer", block.index)
                parts = block.mixer.derived
                made = sum(derived_info(part, types[part.weight], f32=estimator.f32).nbytes for part in parts)
                cpu, gpu = self._derived.get(unit, (0, 0))
                self._derived[unit] = cpu + made, gpu + made
        self._layers = groups_of(spec)
        self._experts = estimator.experts()
        self._states = {layer: 4 * shape.state_floats for layer, shape in state_shapes(spec)}
        self._ring: dict[UnitId, int] = {}
        for use in estimator.uses:
            if use.use == "matrix" and use.unit.kind == "experts":
                self._ring[use.unit] = self._ring.get(use.unit, 0) + aligned(estimator.tensors[use.name].nbytes)
        self._named: dict[UnitId, int] = {}
        for use in estimator.uses:
            self._named[use.unit] = self._named.get(use.unit, 0) + estimator.tensors[use.name].nbytes
        self._caches: dict[tuple[KvType, KvType], dict[int, tuple[tuple[int, int], tuple[int, int]]]] = {}
        self._tables = estimator.layer_tables()

    def of(self, placement: Placement, beside: Placement | None) -> Mapping[Device, Sums]:
        """The sums of each device in use. beside: see `Estimator.streamed`."""
        places = placement.places
        weights = self._added(self._weights, self._shared_weights, placement)
        derived = self._added(self._derived, self._shared_derived, _undealt(placement if beside is None else beside))
        kv: defaultdict[Device, int] = defaultdict(int)
        kept: defaultdict[Device, int] = defaultdict(int)
        for layer, (cpu, gpu) in self._cache(placement).items():
            unit = UnitId("kv", layer)
            here = places[unit]
            needed, spare = gpu if isinstance(here, Gpu) else cpu
            if not placement.spreads:
                kv[here] += needed
                kept[here] += spare
                continue
            for device, nbytes in placement.dealt(unit, needed).items():
                kv[device] += nbytes
            for device, nbytes in placement.dealt(unit, spare).items():
                kept[device] += nbytes
        state = self._state(placement)
        passing = {} if beside is None else self._passing(places, beside.places)
        mixers: defaultdict[Device, list[int]] = defaultdict(list)
        for i in range(self._spec.n_layers):
            mixers[places[UnitId("mixer", i)]].append(i)
        found: dict[Device, Sums] = {}
        pooled = self._pooled(placement)
        home = placement.home
        for device in {*placement.devices, *passing}:
            more, biases = pooled.get(device, (0, 0))
            tables = self._table_bytes(mixers[device] if isinstance(device, Gpu) else None if device == home else [])
            found[device] = (
                weights[device] + more,
                derived[device] + tables + biases,
                kv[device],
                kept[device],
                state.get(device, 0),
                passing.get(device, 0),
            )
        return found

    def _pooled(self, placement: Placement) -> dict[Device, tuple[int, int]]:
        """(weights, biases) of the pools on each GPU that has some."""
        gpus = {pool.gpu for pool in placement.pools}
        return {gpu: pool_bytes(self._experts, self._full.tensors, placement, gpu) for gpu in gpus}

    def colours(self, placement: Placement) -> Mapping[Device, tuple[int, int, int]]:
        """Bytes of weights by device: of attention, of experts, of the rest, what several units share among it."""
        kinds: defaultdict[Device, list[int]] = defaultdict(lambda: [0, 0, 0])
        places = placement.places
        for unit, (cpu, gpu) in self._weights.items():
            device, colour = places[unit], _COLOURS.get(unit.kind, 2)
            if isinstance(device, Gpu):
                kinds[device][colour] += gpu
            elif not placement.spreads:
                kinds[device][colour] += cpu
            else:
                for node, part in placement.dealt(unit, cpu).items():
                    kinds[node][colour] += part
        for device, part in self._added({}, self._shared_weights, placement).items():
            kinds[device][2] += part
        for card, (more, _) in self._pooled(placement).items():
            kinds[card][1] += more
        return {device: (one[0], one[1], one[2]) for device, one in kinds.items()}

    def by_unit(self, placement: Placement) -> dict[UnitId, int]:
        """Bytes of the tensors of each unit, of a cache or of the states of a layer: those of `Estimator.unit_bytes`, sooner."""
        places, found = placement.places, dict(self._named)
        for layer, (cpu, gpu) in self._cache(placement).items():
            unit = UnitId("kv", layer)
            found[unit] = sum(gpu if isinstance(places[unit], Gpu) else cpu)
        slots, _ = plan_slots(self._spec, self._full.snapshot_budget) if self._states else (0, 0)
        return found | {UnitId("state", layer): slots * nbytes for layer, nbytes in self._states.items()}

    def _sum_up(
        self,
        on_node: tuple[Use, ...],
        on_gpu: tuple[Use, ...],
        size: Callable[[TensorInfo], tuple[int, int]],
    ) -> tuple[dict[UnitId, tuple[int, int]], list[_Tensor]]:
        """Bytes on a node and on a GPU by unit, of tensors that one unit reads so, and the tensors that several read."""
        readers: dict[str, dict[UnitId, None]] = {}
        uses: dict[str, set[Use]] = {}
        for use in self._full.uses:
            if use.use in on_node or use.use in on_gpu:
                readers.setdefault(use.name, {})[use.unit] = None
                uses.setdefault(use.name, set()).add(use.use)
        sums: dict[UnitId, tuple[int, int]] = {}
        shared: list[_Tensor] = []
        for name, units in readers.items():
            cpu, gpu = size(self._full.tensors[name])
            cpu, gpu = cpu * bool(uses[name] & set(on_node)), gpu * bool(uses[name] & set(on_gpu))
            if len(units) > 1:
                shared.append(_Tensor(tuple(units), cpu, gpu))
                continue
            (unit,) = units
            before = sums.get(unit, (0, 0))
            sums[unit] = before[0] + cpu, before[1] + gpu
        return sums, shared

    @staticmethod
    def _added(sums: Mapping[UnitId, tuple[int, int]], shared: list[_Tensor], placement: Placement) -> defaultdict[Device, int]:
        found: defaultdict[Device, int] = defaultdict(int)
        places = placement.places
        if not placement.spreads:
            for unit, (cpu, gpu) in sums.items():
                device = places[unit]
                found[device] += gpu if isinstance(device, Gpu) else cpu
        dealt: dict[int, tuple[UnitId, int]] = {}  # by spread: one unit that has it, and the bytes of all
        for unit, (cpu, gpu) in sums.items() if placement.spreads else ():
            spread, device = placement.spread_of(unit), places[unit]
            if spread is None:
                found[device] += gpu if isinstance(device, Gpu) else cpu
            else:
                dealt[id(spread)] = unit, dealt.get(id(spread), (unit, 0))[1] + cpu
        for unit, nbytes in dealt.values():
            for device, part in placement.dealt(unit, nbytes).items():
                found[device] += part
        for tensor in shared:
            parts: dict[Device, int] = {}  # once on each device; of what its units have there the largest
            for unit in tensor.units:
                nbytes = tensor.gpu if isinstance(places[unit], Gpu) else tensor.cpu
                for device, part in placement.dealt(unit, nbytes).items():
                    parts[device] = max(part, parts.get(device, 0))
            for device, part in parts.items():
                found[device] += part
        return found

    def _cache(self, placement: Placement) -> dict[int, tuple[tuple[int, int], tuple[int, int]]]:
        """Of each layer with a cache, (kv, kept windows) on a node and on a GPU."""
        types = placement.k_type, placement.v_type
        if types not in self._caches:
            self._caches[types] = {
                layer: (self._full.layer_cache(layer, Numa(0), placement), self._full.layer_cache(layer, Gpu(0), placement))
                for layer in self._layers
            }
        return self._caches[types]

    def _state(self, placement: Placement) -> dict[Device, int]:
        if not self._states:
            return {}
        slots, _ = plan_slots(self._spec, self._full.snapshot_budget)
        found: defaultdict[Device, int] = defaultdict(int)
        for layer, nbytes in self._states.items():
            unit = UnitId("state", layer)
            n = slots + isinstance(placement.places[unit], Gpu)
            for device, part in placement.dealt(unit, n * nbytes).items():
                found[device] += part
        return found

    def _passing(self, places: Mapping[UnitId, Device], beside: Mapping[UnitId, Device]) -> dict[Device, int]:
        """Bytes of the rings through which experts pass on GPUs, and of what is pinned for them in memory."""
        largest: dict[Device, int] = {}
        sources: set[Device] = set()
        for unit, nbytes in self._ring.items():
            there = beside[unit]
            if places[unit] != there:
                largest[there] = max(nbytes, largest.get(there, 0))
                sources.add(places[unit])
        found = {device: RING_LAYERS * nbytes for device, nbytes in largest.items()}
        pinned = CHUNKS * CHUNK_BYTES * len(found)
        return found | dict.fromkeys(sources, pinned)

    def _table_bytes(self, layers: list[int] | None) -> int:
        """Bytes of the tables of positions that the layers (None: all) use, each once."""
        found: dict[Rope | Temperature, int] = {}
        for one in self._tables if layers is None else (self._tables[i] for i in layers):
            found |= one
        return sum(found.values())

    @staticmethod
    def _stored(tensor: TensorInfo) -> tuple[int, int]:
        return tensor.nbytes, -(-padded_bytes(tensor.type_name, tensor.nbytes) // GPU_ALIGN) * GPU_ALIGN

    @staticmethod
    def _as_f32(tensor: TensorInfo) -> tuple[int, int]:
        return 4 * tensor.n_elements, 4 * tensor.n_elements
