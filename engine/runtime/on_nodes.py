"""A placement on a machine with several nodes of memory: teams, copied weights, caches where their attention is, and what that is
in the ledger. On a machine with one node none of this is asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from engine.arch.units import UnitId
from engine.errors import Cancelled, PlacementError
from engine.hardware.memory import free_bytes
from engine.hardware.topology_read import topology
from engine.placement.placement import Numa, Placement
from engine.placement.spread import Interleave, NodePolicy, Split
from engine.placement.tensors import tensor_uses
from engine.runtime.cpu_programs import CpuPrograms
from engine.runtime.kv_cache import KvCache
from engine.runtime.node_memory import Meant, NodeMemory
from engine.runtime.node_weights import NodeWeights
from engine.runtime.placed import Placed
from engine.runtime.residency import Holding, Owner
from engine.runtime.source import Building, ModelSource
from engine.runtime.spreading import Spreading
from engine.runtime.states import StatePool
from engine.runtime.teams import node_of_cpu
from kernels_pyx.arena import Arena
from kernels_pyx.executor import AbortFlag

MOST_COPIED = 0.9
"""Of the memory that is free, so much may go to copies; a larger model stays in the system's cache of its file."""
WELL_PLACED = 0.9
"""Of the weights of a node: less is told."""
MAPPED = (
    "The weights are more than nine tenths of the free memory: they stay in the system's cache of the file, which puts each page "
    "where it was first read."
)


def spreading_of(source: ModelSource, placement: Placement, copied_bytes: int, beside: Spreading | None) -> Spreading | None:
    """Where the weights of a placement lie; None: the machine has one node. copied_bytes: of weights that ops read whole.

    beside: of the placement that runs; its weights are shared, or copied or mapped as they are.

    Raises:
        PlacementError: a node that is not there.
    """
    if source.nodes is None:
        other = [node for node in placement.nodes if node != 0]
        if other:
            raise PlacementError(
                f"the placement uses numa{other[0]}, which is not there; this machine has one node of memory, numa0"
            )
        return None
    missing = [node for node in placement.nodes if node not in source.nodes.cpus]
    if missing:
        there = ", ".join(f"numa{node}" for node in sorted(source.nodes.cpus))
        raise PlacementError(f"the placement uses numa{missing[0]}, which is not there; this machine has {there}")
    wanted = source.options.node_memory
    copies = wanted == "copied" or (wanted == "auto" and copied_bytes <= MOST_COPIED * free_bytes())
    if beside is not None:
        copies = beside.weights is not None
    known = None if beside is None else beside.weights
    weights = NodeWeights(source.weights, source.nodes, known) if copies else None
    return Spreading(placement, node_of_cpu(topology()), weights)


def notes_of(source: ModelSource, spreading: Spreading | None, programs: CpuPrograms | None) -> tuple[str, ...]:
    """What of a placement over nodes could not be done as meant, one sentence each."""
    if spreading is None or source.nodes is None:
        return ()
    denied = (source.nodes.problem,) if source.nodes.problem else ()
    mapped = (MAPPED,) if spreading.weights is None and source.options.node_memory == "auto" else ()
    teams = None if programs is None else programs.teams
    crowded = () if spreading.weights is None else crowded_out(source.nodes, spreading.weights.meant)
    return (*(() if teams is None else teams.notes), *denied, *mapped, *crowded)


def crowded_out(memory: NodeMemory, places: Collection[Meant]) -> tuple[str, ...]:
    """What lies on another node than it prefers, by the node that had no room for it; one sentence each."""
    by_node: dict[int, list[Meant]] = {}
    for one in places:
        if len(one.nodes) == 1:
            by_node.setdefault(one.nodes[0], []).append(one)
    notes = []
    for node, mine in sorted(by_node.items()):
        report = memory.check(mine)
        if report.share is None or report.share >= WELL_PLACED:
            continue
        total = sum(one.nbytes for one in mine)
        others = " and ".join(f"node {other}" for other, n in sorted(report.by_node.items()) if other != node and n)
        notes.append(
            f"Memory node {node} had no room for {_megabytes((1 - report.share) * total)} of the {_megabytes(total)} of weights "
            f"that are placed there: they lie on {others}, and its cores read them from afar. Free memory of node {node} and "
            "apply the placement again, or place less there."
        )
    return tuple(notes)


def _megabytes(n: float) -> str:
    return f"{n / 1e6:,.0f} MB"


def bring_to_nodes(
    source: ModelSource,
    spreading: Spreading,
    names: Collection[str],
    new: Collection[str],
    building: Building,
    progress: Callable[[int, int], None],
) -> int:
    """Copies what is copied, and reads the rest of the new tensors into the cache of the file, on their nodes; bytes.

    Raises: see `NodeWeights.fill` and `Weights.touch`.
    """
    assert source.nodes is not None
    stored = set() if spreading.weights is None else {part.tensor for _, part in spreading.weights.held}
    by_nodes: dict[tuple[int, ...], list[str]] = {}
    for use in tensor_uses(source.graph):
        if use.name in new and use.name in names and use.name not in stored:
            nodes = spreading.placement.nodes_of(use.unit) or (spreading.placement.home.node,)
            by_nodes.setdefault(nodes, []).append(use.name)
    mapped = sum(source.weights.tensor(name).nbytes for found in by_nodes.values() for name in set(found))
    copied = 0 if spreading.weights is None else spreading.weights.new_bytes
    done = 0

    def told(n: int, _: int) -> None:
        progress(done + n, copied + mapped)

    if spreading.weights is not None:
        done = spreading.weights.fill(told, building.abort, building.pause)
    for nodes, found in by_nodes.items():
        with source.nodes.faulting(nodes):
            done += source.weights.touch(found, told, building.abort, building.pause)
    source.nodes.make_sure(_mapped(source, spreading.placement, names, stored))
    return done


def _mapped(source: ModelSource, placement: Placement, names: Collection[str], stored: Collection[str]) -> tuple[Meant, ...]:
    """Where tensors that are read from the mapped file are meant to lie."""
    nodes: dict[str, tuple[int, ...]] = {}
    for use in tensor_uses(source.graph):
        if use.name in names and use.name not in stored and placement.nodes_of(use.unit):
            nodes.setdefault(use.name, placement.nodes_of(use.unit))
    tensors = ((where, source.weights.tensor(name)) for name, where in sorted(nodes.items()))
    return tuple(Meant(where, source.weights.address(one), one.nbytes) for where, one in tensors)


def keep_caches(
    nodes: NodeMemory, placement: Placement, cache: KvCache, states: StatePool, abort: AbortFlag, before: Placement | None
) -> None:
    """Caches and states lie where the attention that reads them does. before: where they lay; what is there already follows.

    Raises:
        Cancelled: the flag was set.
    """
    for unit, arena in caches_of(cache, states):
        if abort.is_set:
            raise Cancelled("loading was stopped")
        where, was = placement.nodes_of(unit), () if before is None else before.nodes_of(unit)
        if where and not was:
            nodes.begin(arena.address, arena.nbytes, where)
        elif where and where != was:
            nodes.follow(arena.address, arena.nbytes, where)


def caches_of(cache: KvCache, states: StatePool) -> Iterator[tuple[UnitId, Arena]]:
    """The memory of each layer's cache or states."""
    yield from ((UnitId("kv", layer), one.arena) for layer, one in cache.layers.items())
    yield from ((UnitId("state", layer), one.arena) for layer, one in states.layers.items())


def meant_caches(placement: Placement, cache: KvCache, states: StatePool) -> tuple[Meant, ...]:
    """Where they are meant to lie."""
    found = ((placement.nodes_of(unit), arena) for unit, arena in caches_of(cache, states))
    return tuple(Meant(nodes, arena.address, arena.nbytes) for nodes, arena in found if nodes)


def meant_places(source: ModelSource, placed: Placed) -> tuple[Meant, ...]:
    """Where weights, caches and states of a placement are meant to lie."""
    placement, weights = placed.placement, None if placed.spreading is None else placed.spreading.weights
    stored = set() if weights is None else {part.tensor for _, part in weights.held}
    mapped = _mapped(source, placement, placed.on_cpu, stored)
    copied = () if weights is None else weights.meant
    return (*copied, *mapped, *meant_caches(placement, placed.cache, placed.states))


def policy_of(source: ModelSource, placed: Placed) -> NodePolicy:
    """How the weights of a placement come to their nodes."""
    if source.nodes is None or placed.spreading is None:
        return ""
    if placed.spreading.weights is None:
        return "mapped"
    if source.nodes.problem:
        return "first touch"
    kinds = {type(placed.placement.spread_of(unit)) for unit, _ in placed.placement.units if placed.placement.nodes_of(unit)}
    if Split in kinds or (Interleave not in kinds and len(placed.placement.nodes) > 1):
        return "split"
    return "interleave" if Interleave in kinds else "single"


def weight_holdings(source: ModelSource, spreading: Spreading, names: Collection[str]) -> tuple[Holding, ...]:
    """What copied weights take on each node, and what stays in the cache of the file."""
    weights = spreading.weights
    stored = set() if weights is None else {part.tensor for _, part in weights.held}
    mapped = sum(source.weights.tensor(name).nbytes for name in names if name not in stored)
    found = () if weights is None else tuple(Holding(Numa(node), "weights", n) for node, n in sorted(weights.bytes_on().items()))
    return (*found, Holding(spreading.placement.home, "weights", mapped, mapped=True)) if mapped else found


def cache_holdings_on(placement: Placement, cache: KvCache, states: StatePool) -> tuple[Holding, ...]:
    """What caches and states take on each node."""
    found: dict[tuple[int, Owner], int] = {}

    def add(unit: UnitId, owner: Owner, nbytes: int) -> None:
        nodes = placement.nodes_of(unit)
        for i, node in enumerate(nodes):
            share = nbytes // len(nodes) + (nbytes % len(nodes) if i == 0 else 0)
            found[node, owner] = found.get((node, owner), 0) + share

    for layer, one in cache.layers.items():
        needed = cache.groups[one.group].n_needed * one.block_bytes
        add(UnitId("kv", layer), "kv", needed)
        add(UnitId("kv", layer), "kept windows", cache.groups[one.group].n_blocks * one.block_bytes - needed)
    for layer, state in states.layers.items():
        add(UnitId("state", layer), "state", states.n_slots * state.slot_bytes)
    return tuple(Holding(Numa(node), owner, nbytes) for (node, owner), nbytes in sorted(found.items()))
