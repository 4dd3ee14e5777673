"""Where each unit of a model lies and which cores work: a value, made from options or an editor, read by outline and loader."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from engine.arch.spec import BlockSpec, DeltaNet, ModelSpec, MoeFfn
from engine.arch.units import UnitId, UnitKind
from engine.errors import InvalidRequest, PlacementError
from engine.hardware.topology_read import topology
from engine.hardware.worker_plan import NOT_PINNED, plan_cores
from engine.placement.options import KvType, LoadOptions
from engine.placement.spread import Spread, nodes_in, shared
from engine.placement.threads import MAX_THREADS


@dataclass(frozen=True, slots=True, eq=False)
class Numa:
    """The memory and cores of one NUMA node. One object for each, as of `Gpu`: estimates look devices up by the thousand while a
    card is dragged, and what is only compared by identity is found in a third of the time."""

    node: int

    def __new__(cls, node: int) -> Numa:
        return _NODES.get(node) or _NODES.setdefault(node, object.__new__(cls))

    def __getnewargs__(self) -> tuple[int]:
        return (self.node,)

    def __str__(self) -> str:
        return f"numa{self.node}"

    def __lt__(self, other: Device) -> bool:
        return _rank(self) < _rank(other)


@dataclass(frozen=True, slots=True, eq=False)
class Gpu:
    """One graphics card, or what is emulated in its place, with memory of its own. One object for each."""

    index: int

    def __new__(cls, index: int) -> Gpu:
        return _GPUS.get(index) or _GPUS.setdefault(index, object.__new__(cls))

    def __getnewargs__(self) -> tuple[int]:
        return (self.index,)

    def __str__(self) -> str:
        return f"gpu{self.index}"

    def __lt__(self, other: Device) -> bool:
        return _rank(self) < _rank(other)


_NODES: dict[int, Numa] = {}
_GPUS: dict[int, Gpu] = {}

Device = Numa | Gpu
"""Sorted: nodes of memory before cards."""


def _rank(device: Device) -> tuple[bool, int]:
    return (True, device.index) if isinstance(device, Gpu) else (False, device.node)


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """The team of a node: one core number per worker, -1 = not pinned. The first worker is the thread that asks.

    kept: cores on which nobody works, for what launches GPU work and for the window.
    """

    cores: tuple[int, ...]
    kept: tuple[int, ...] = ()

    @property
    def n_workers(self) -> int:
        """Size of the team, the asking thread included."""
        return len(self.cores)


@dataclass(frozen=True, slots=True)
class Pool:
    """Copies of some experts of `experts.<layer>` in slots of a GPU, beside the whole set, which stays in the machine's memory.

    The GPU is that of the layer's router; it computes what it has, the CPU the rest. While the model runs, other experts may take
    their places; the number of slots stays. See `engine.placement.pools`.
    """

    layer: int
    gpu: Gpu
    experts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """Unit -> device, the types of the KV cache, who works, and pools of experts, one a layer at most.

    spreads: of units that lie on several nodes of memory; their device is the first of these. See `spread_of`.
    nodes: of memory that are in use, ascending.
    """

    units: tuple[tuple[UnitId, Device], ...]
    k_type: KvType
    v_type: KvType
    workers: WorkerPlan
    pools: tuple[Pool, ...] = ()
    spreads: tuple[tuple[UnitId, Spread], ...] = ()
    nodes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _places: dict[UnitId, Device] = field(init=False, repr=False, compare=False)
    _spreads: dict[UnitId, Spread] = field(init=False, repr=False, compare=False)
    _pools: dict[int, Pool] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places = dict(self.units)
        nodes = {device.node for device in set(places.values()) if isinstance(device, Numa)}
        homes = {id(one): (Numa(one.nodes[0]), one.nodes) for _, one in self.spreads}
        counting = {unit: one for unit, one in self.spreads if places.get(unit) == homes[id(one)][0]}
        for one in {id(one): one for one in counting.values()}.values():
            nodes.update(homes[id(one)][1])
        pools = {one.layer: one for one in reversed(self.pools) if isinstance(places.get(UnitId("experts", one.layer)), Numa)}
        object.__setattr__(self, "_places", places)
        object.__setattr__(self, "_pools", pools)
        object.__setattr__(self, "_spreads", counting)
        object.__setattr__(self, "nodes", tuple(sorted(nodes)))

    def device_of(self, unit: UnitId) -> Device:
        """The device that `unit` lies on.

        Raises:
            PlacementError: the placement does not know the unit.
        """
        device = self._places.get(unit)
        if device is None:
            raise PlacementError(f"the placement has no place for {unit}; it was made for another model")
        return device

    def pool_of(self, layer: int) -> Pool | None:
        """The pool of a layer that counts: its experts lie in the machine's memory in this placement."""
        return self.pools_that_count.get(layer)

    @property
    def pools_that_count(self) -> Mapping[int, Pool]:
        """By layer, those whose experts lie in the machine's memory in this placement."""
        return self._pools

    def spread_of(self, unit: UnitId) -> Spread | None:
        """How a unit lies over several nodes; None: on one device. One that was moved elsewhere since is not spread any more."""
        return self._spreads.get(unit)

    def nodes_of(self, unit: UnitId) -> tuple[int, ...]:
        """The nodes of memory that a unit lies on, none on a GPU."""
        device = self._places.get(unit)
        return nodes_in(self.spread_of(unit), device.node) if isinstance(device, Numa) else ()

    def dealt(self, unit: UnitId, nbytes: int) -> Mapping[Device, int]:
        """Bytes of a unit by device: all on its own, or those of each node that it is spread over."""
        device = self.device_of(unit)
        if not self.spreads or not isinstance(device, Numa):
            return {device: nbytes}
        return {Numa(node): n for node, n in shared(nbytes, self.spread_of(unit), device.node).items()}

    @property
    def home(self) -> Numa:
        """The node of what is nobody's alone: buffers between ops, tables; the first one in use."""
        return Numa(min(self.nodes, default=0))

    @property
    def joined(self) -> Placement:
        """The placement as though all nodes of memory were the home."""
        home = self.home
        if all(device == home or isinstance(device, Gpu) for _, device in self.units):
            return self
        return replace(self, units=tuple((unit, home if isinstance(one, Numa) else one) for unit, one in self.units), spreads=())

    @property
    def places(self) -> Mapping[UnitId, Device]:
        """The devices by unit."""
        return self._places

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices in use, sorted."""
        return tuple(sorted({*self._places.values(), *map(Numa, self.nodes)}))


def units_of(spec: ModelSpec) -> tuple[UnitId, ...]:
    """Everything of a model that can be placed, in order of execution."""
    layers = [UnitId(kind, block.index) for block in spec.blocks for kind in _kinds(block)]
    return (UnitId("embed"), *layers, UnitId("head"))


def _kinds(block: BlockSpec) -> tuple[UnitKind, ...]:
    memory: UnitKind = "state" if isinstance(block.mixer, DeltaNet) else "kv"
    if not isinstance(block.ffn, MoeFfn):
        return ("mixer", memory, "ffn")
    shared: tuple[UnitKind, ...] = () if block.ffn.shared is None else ("shared",)
    return ("mixer", memory, "ffn", *shared, "experts")


def default_placement(spec: ModelSpec, options: LoadOptions) -> Placement:
    """Everything on node 0.

    Raises:
        InvalidRequest: a number of threads that no team can have.
    """
    home = Numa(0)
    return Placement(
        tuple((unit, home) for unit in units_of(spec)),
        options.k_type,
        options.v_type,
        plan_workers(options.n_threads, options.cores),
    )


def plan_workers(n_threads: int, cores: tuple[int, ...] = ()) -> WorkerPlan:
    """A team of n_threads, or on exactly those cores; 0: one on each physical core that is good for it, see `plan_cores`.

    Pinned when every worker gets a core of its own; tests that run side by side are not, they would all meet on the first core.

    Raises:
        InvalidRequest: n_threads is negative or absurd; cores that cannot be used.
    """
    if not 0 <= n_threads <= MAX_THREADS or len(cores) > MAX_THREADS:
        raise InvalidRequest(f"{n_threads} threads asked for; use 0 (one per core) to {MAX_THREADS}")
    plan = plan_cores(topology(), n_threads, cores)
    workers = plan.workers[:MAX_THREADS]
    if "PYTEST_XDIST_WORKER" in os.environ:
        workers = (NOT_PINNED,) * len(workers)
    return WorkerPlan(workers, plan.kept)
