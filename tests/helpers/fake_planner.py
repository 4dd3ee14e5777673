"""A planner with arithmetic that tests can do in their head, over a model and a machine such as the board is made for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import cast

from engine.api.errors import PlacementError
from engine.api.pure import (
    Calibration,
    Device,
    DevicePrediction,
    Gpu,
    Machine,
    ModelOutline,
    NodeInfo,
    Numa,
    Placement,
    Prediction,
    UnitFacts,
    UnitId,
    UnitKind,
)
from engine.api.values import LoadOptions, ModelInfo
from engine.estimate.described import Described
from engine.estimate.memory import DeviceBytes
from engine.hardware.gpus import GpuInfo
from engine.placement.over_nodes import with_spread
from engine.placement.placement import Pool, WorkerPlan
from engine.placement.spread import even

GB, MB = 1_000_000_000, 1_000_000
RATE = {Gpu: 1000.0, Numa: 150.0}
"""GB/s that a device reads."""
SIZES: dict[UnitKind, int] = {
    "embed": 500 * MB,
    "mixer": 155 * MB,
    "kv": 74 * MB,
    "state": 10 * MB,
    "ffn": 330 * MB,
    "shared": 36 * MB,
    "experts": 6300 * MB,
    "head": 800 * MB,
}
BUFFERS = 2600 * MB
N_EXPERTS, N_USED = 256, 8


def outline(n_layers: int = 61, n_dense: int = 3, *, experts: bool = True, shared: bool = True) -> ModelOutline:
    """A model of n_layers, the first n_dense without experts. No planner but the scripted one can use it."""
    units = [UnitId("embed")]
    for layer in range(n_layers):
        routed = experts and layer >= n_dense
        kinds: list[UnitKind] = [
            "mixer",
            "kv",
            "ffn",
            *(["shared"] if routed and shared else []),
            *(["experts"] if routed else []),
        ]
        units += [UnitId(kind, layer) for kind in kinds]
    units.append(UnitId("head"))
    routed_layers = {unit.layer for unit in units if unit.kind == "experts"}
    facts = tuple(_facts(unit, routed_layers) for unit in units)
    info = ModelInfo(
        "/models/deepseek.gguf",
        "DeepSeek-V3.1 671B",
        "deepseek2",
        "Q4_K_M",
        671 * GB,
        n_layers,
        129_280,
        405 * GB,
        163_840,
        65_536,
        True,
    )
    kinds_of_layers = ("latent",) * n_layers
    return ModelOutline(info, facts, "test", n_layers, N_EXPERTS, N_USED, kinds_of_layers, cast(Described, None))


def _facts(unit: UnitId, routed: set[int]) -> UnitFacts:
    nbytes = 0 if unit.kind == "kv" else 2 * MB if unit.kind == "ffn" and unit.layer in routed else SIZES[unit.kind]
    many = unit.kind == "experts"
    read = nbytes * N_USED // N_EXPERTS if many else 0 if unit.kind == "embed" else nbytes
    formats = "" if unit.kind == "kv" else "Q4_K" if many else "Q6_K"
    return UnitFacts(
        unit=unit,
        nbytes=nbytes,
        formats=formats,
        read_per_token=read,
        n_experts=N_EXPERTS if many else 0,
        n_used=N_USED if many else 0,
    )


def machine(
    gpus: tuple[tuple[str, int], ...] = (("RTX 4090", 24), ("RTX 3090", 24)), n_nodes: int = 2, ram: int = 256
) -> Machine:
    """GPUs by name and GB, nodes of an EPYC."""
    cards = tuple(GpuInfo(i, name, size * GB, size * GB) for i, (name, size) in enumerate(gpus))
    nodes = tuple(NodeInfo(i, "EPYC 7543", ram * GB, ram * GB, 32, RATE[Numa]) for i in range(n_nodes))
    return Machine(ram_bytes=n_nodes * ram * GB, ram_free=n_nodes * ram * GB, gpus=cards, nodes=nodes)


class ScriptedPlanner:
    """Bytes add up, a token reads what it needs at the rate of each device in turn.

    Heads refuse nodes; what does not fit is fixed by moving experts from the fullest device to the emptiest node.
    """

    n_ctx = 65_536

    def __init__(self, outline: ModelOutline, options: LoadOptions, machine: Machine) -> None:
        self._facts = {fact.unit: fact for fact in outline.units}
        self._capacity: dict[Device, int] = {Gpu(one.index): one.capacity for one in machine.gpus}
        self._capacity |= {Numa(one.node): one.ram_free for one in machine.nodes}
        self._names = {Gpu(one.index): one.name for one in machine.gpus} | {Numa(one.node): one.name for one in machine.nodes}
        self.n_estimates = 0
        self.counts: dict[int, tuple[int, ...]] = {}

    def default(self) -> Placement:
        """Layers in halves over two GPUs, their experts over the nodes."""
        gpus = [one for one in self._capacity if isinstance(one, Gpu)]
        nodes = [one for one in self._capacity if isinstance(one, Numa)]
        n_layers = 1 + max(unit.layer for unit in self._facts)

        def place(unit: UnitId) -> Device:
            if unit.kind == "embed" or not gpus:
                return nodes[0]
            if unit.kind == "head":
                return gpus[0]
            among: list[Device] = [*nodes] if unit.kind == "experts" else [*gpus[:2]]
            return among[unit.layer * len(among) // n_layers]

        return Placement(tuple((unit, place(unit)) for unit in self._facts), "f16", "f16", WorkerPlan((-1,)))

    def set_rates(self, rates: Calibration) -> None:
        """Remembers that there are some."""
        self.rates: Calibration | None = rates

    def set_counts(self, counts: Mapping[int, Sequence[int]]) -> None:
        """Remembers them, for `fit`."""
        self.counts = {layer: tuple(row) for layer, row in counts.items()}

    def fit(self) -> Placement:
        """The default, and an expert layer on each GPU; with a pool of the hottest expert of each layer that was counted."""
        found = self.default()
        for device in self._capacity:
            if isinstance(device, Gpu):
                routed = [unit for unit, where in found.units if unit.kind == "experts" and isinstance(where, Numa)]
                found = self.move(found, tuple(routed[:1]), device)
        if not self.estimate(found).fits:
            raise PlacementError("405 GB of weights are more than the 320 GB of this machine; choose a smaller model")
        for layer, row in self.counts.items():
            hottest, router = max(range(len(row)), key=row.__getitem__), found.device_of(UnitId("ffn", layer))
            if isinstance(router, Gpu) and isinstance(found.device_of(UnitId("experts", layer)), Numa):
                found = replace(found, pools=(*found.pools, Pool(layer, router, (hottest,))))
        return found

    def estimate(self, placement: Placement) -> Prediction:
        """Sums over units."""
        self.n_estimates += 1
        sums: dict[Device, dict[str, int]] = {
            device: dict.fromkeys(("attention", "ffn", "experts", "kv", "read"), 0) for device in self._capacity
        }
        for unit, device in placement.units:
            if device in sums:
                fact = self._facts[unit]
                sums[device][_KEYS[unit.kind]] += fact.nbytes or SIZES[unit.kind]
                sums[device]["read"] += fact.read_per_token
        devices = tuple(self._device(device, one) for device, one in sums.items())
        total_ms = sum(one.decode_ms for one in devices)
        limit = max(devices, key=lambda one: one.decode_ms)
        return Prediction(
            devices=devices,
            decode_tok_s=1000 / total_ms,
            prefill_tok_s=17_000 / total_ms,
            load_s=96.0,
            bound_tok_s=1200 / total_ms,
            limit_device=limit.device,
            limit="memory read",
            fits=not any(one.over for one in devices),
            n_ctx=self.n_ctx,
        )

    def _device(self, device: Device, one: dict[str, int]) -> DevicePrediction:
        held = one["attention"] + one["ffn"] + one["experts"] + one["kv"]
        owners = DeviceBytes(
            device=device,
            weights=held - one["kv"],
            derived=0,
            kv=one["kv"],
            kept_windows=0,
            state=0,
            workspace=BUFFERS if held else 0,
            other=0,
            capacity=self._capacity[device],
        )
        return DevicePrediction(
            device=device,
            name=self._names[device],
            attention=one["attention"],
            ffn=one["ffn"],
            experts=one["experts"],
            kv=one["kv"],
            buffers=owners.workspace,
            owners=owners,
            decode_ms=one["read"] / RATE[type(device)] / MB,
            prefill_ms=one["read"] / RATE[type(device)] / MB,
        )

    def move(self, placement: Placement, units: tuple[UnitId, ...], device: Device) -> Placement:
        """With caches."""
        mixers = {unit.layer for unit in units if unit.kind == "mixer"}
        gone = {*units, *(UnitId(kind, layer) for kind in _FOLLOW for layer in mixers)}
        return replace(placement, units=tuple((unit, device if unit in gone else where) for unit, where in placement.units))

    def into_memory(self, placement: Placement, units: tuple[UnitId, ...]) -> Placement:
        """Over all nodes alike."""
        nodes = [one.node for one in self._capacity if isinstance(one, Numa)]
        return with_spread(placement, units, even(nodes)) if len(nodes) > 1 else self.move(placement, units, Numa(nodes[0]))

    def off_nodes(self, placement: Placement, units: tuple[UnitId, ...]) -> Placement:
        """Each on its device alone."""
        return with_spread(placement, units, None)

    def nodes_refusal(self, placement: Placement, units: tuple[UnitId, ...]) -> str:
        """The head must be on a GPU, and a node alone has none beside it."""
        if sum(isinstance(one, Numa) for one in self._capacity) < 2:
            return "This machine has one memory node, so there is nothing to split over; move them to another device."
        return self.refusal(placement, units, Numa(0))

    def refusal(self, placement: Placement, units: tuple[UnitId, ...], device: Device) -> str:
        """The head must be on a GPU."""
        if UnitId("head") in units and isinstance(device, Numa):
            return "The output head must be on a GPU; move it to GPU 1 instead."
        return ""

    def fix(self, placement: Placement, held: Collection[UnitId] = ()) -> tuple[str, Placement] | None:
        """Experts to the last node, as few as will do."""
        over = [one for one in self.estimate(placement).devices if one.over]
        home = Numa(max(one.node for one in self._capacity if isinstance(one, Numa)))
        if not over:
            return None
        here = [
            unit for unit, where in placement.units if where == over[0].device and unit.kind == "experts" and unit not in held
        ]
        n = -(-over[0].over // SIZES["experts"])
        if n > len(here):
            return None
        return f"Move {n} layers to NUMA {home.node}", self.move(placement, tuple(here[-n:]), home)

    def unit_bytes(self, placement: Placement) -> dict[UnitId, int]:
        """As in the facts; caches as in SIZES."""
        return {unit: fact.nbytes or SIZES[unit.kind] for unit, fact in self._facts.items()}

    def unit_ms(self, unit: UnitId, device: Device) -> float:
        """Its reads at the rate of the device."""
        return self._facts[unit].read_per_token / RATE[type(device)] / MB


_FOLLOW: tuple[UnitKind, ...] = ("kv", "state")
_KEYS: dict[UnitKind, str] = {
    "embed": "ffn",
    "mixer": "attention",
    "kv": "kv",
    "state": "kv",
    "ffn": "ffn",
    "shared": "ffn",
    "experts": "experts",
    "head": "ffn",
}
Read = Callable[[str], ModelOutline]
