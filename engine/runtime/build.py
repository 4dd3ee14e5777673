"""A placement to a model that can step: allocates, compiles, brings the weights. Where it fails the caller calls
`Building.give_back`, and nothing stays. What lies on GPUs is `gpu_loader`'s part."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from engine.errors import OutOfDeviceMemory
from engine.estimate.memory import Estimator
from engine.estimate.moves import with_move
from engine.gguf.info import GgufFile
from engine.graph.ops import Embed, Experts, Graph, LatentAttention, Linear
from engine.placement.options import KV_TYPES, LoadOptions
from engine.placement.placement import Gpu, Numa, Placement, WorkerPlan
from engine.placement.tensors import tensor_uses
from engine.program.plan import Plan
from engine.runtime.buckets import lower_all
from engine.runtime.choices import StepChoices
from engine.runtime.cpu_programs import CpuPrograms, Room
from engine.runtime.derived import DerivedWeights, derived_parts, head_bytes
from engine.runtime.descriptor import Memory
from engine.runtime.executor import Executor
from engine.runtime.kv_cache import KvCache
from engine.runtime.on_nodes import bring_to_nodes, cache_holdings_on, keep_caches, notes_of, spreading_of, weight_holdings
from engine.runtime.owning import Owning
from engine.runtime.placed import Placed
from engine.runtime.residency import Holding
from engine.runtime.source import Building, ModelSource
from engine.runtime.spreading import Spreading
from engine.runtime.states import StatePool, plan_slots
from kernels_pyx.executor import AbortFlag

TOUCHERS = 3
"""Threads that look beside steps for what is in memory."""


def build(source: ModelSource, placement: Placement, building: Building, beside: Placed | None = None) -> Placed:
    """The model, placed so. beside: as it lies now, and goes on lying; parts that stay where they are are shared with it.

    Raises:
        OutOfMemory, PlacementError, UnsupportedModel, GgufError, ModelChanged, InvalidRequest, Cancelled, DeviceLost.
    """
    if not any(isinstance(device, Gpu) for device in placement.devices):
        return _on_cpu(source, placement, building, beside)
    # Not with the module: torch takes a second to import and hundreds of megabytes, which a CPU alone has no use for.
    from engine.runtime.gpu_loader import load_placed

    return load_placed(source, placement, building, beside)


def plans_of(source: ModelSource, placement: Placement) -> tuple[Plan, ...]:
    """The plans of a placement, fewest rows first. Raises: InvalidRequest, PlacementError; see `lower_all`."""
    return source.plans.of(
        placement, lambda: lower_all(source.spec, source.graph, placement, source.types, source.chunk, f32=source.f32)
    )


def advised(error: OutOfDeviceMemory, source: ModelSource, placement: Placement) -> OutOfDeviceMemory:
    """The error, with a move after which the placement would fit. Takes many estimates."""
    return with_move(error, estimator_of(source), placement)


def estimator_of(source: ModelSource, options: LoadOptions | None = None) -> Estimator:
    """Estimates for the model on the machine as it was before anything of it was in memory. options: others than its own."""
    return Estimator(source.spec, source.graph, source.file.tensors, options or source.options, source.machine)


def _on_cpu(source: ModelSource, placement: Placement, building: Building, beside: Placed | None) -> Placed:
    spec, undo = source.spec, building.undo
    cache = KvCache(
        spec,
        source.n_ctx,
        placement.k_type,
        placement.v_type,
        source.chunk,
        beside=None if beside is None else beside.cache,
    )
    undo.append(cache.close)
    slots = plan_slots(spec, source.snapshot_budget) if beside is None else beside.state_slots
    states = StatePool(spec, slots[0], beside=None if beside is None else beside.states)
    undo.append(states.close)
    plans = plans_of(source, placement)
    known = None if beside is None else beside.derived
    derived = DerivedWeights(source.weights, derived_parts(spec), building.abort, f32=source.f32, beside=known)
    choices = StepChoices(spec)
    on_cpu = frozenset(source.types)
    spreading = spread_here(source, placement, on_cpu, building, beside)
    cpu = compile_lanes(
        source, placement, placement.workers, plans, derived, cache, states, choices, beside=beside, spreading=spreading
    )
    undo.append(cpu.close)
    keep_on_nodes(source, placement, cache, states, building, beside)
    told = partial(building.progress, "weights")
    brought = bring_to_cpu(source, on_cpu, beside, building, told, spreading)
    home = placement.home
    holdings = (
        *weights_held(source, home, on_cpu, spreading),
        Holding(home, "derived", source.ropes.nbytes + derived.nbytes + turned_bytes(source, placement)),
        *caches_held(home, cache, states, spreading),
        Holding(home, "workspace", cpu.workspace_bytes),
    )
    executor = Executor(source, plans, cpu, states, choices, building.steps)
    turned = turned_by_cpu(source.graph, placement)
    return Placed(
        placement,
        executor,
        cpu,
        derived,
        cache,
        states,
        slots,
        holdings,
        on_cpu,
        turned,
        {},
        notes_of(source, spreading, cpu),
        moved_bytes=brought,
        spreading=spreading,
    )


def spread_here(
    source: ModelSource,
    placement: Placement,
    on_cpu: Collection[str],
    building: Building,
    beside: Placed | None,
) -> Spreading | None:
    """See `spreading_of`; what it moves is undone where the attempt fails."""
    known = None if beside is None else beside.spreading
    found = spreading_of(source, placement, bytes_of_tensors(source, on_cpu), known)
    if found is not None and found.weights is not None:
        building.undo.append(found.weights.undo)
    return found


def keep_on_nodes(
    source: ModelSource, placement: Placement, cache: KvCache, states: StatePool, building: Building, beside: Placed | None
) -> None:
    """See `keep_caches`; shared ones go back where the attempt fails."""
    if source.nodes is None:
        return
    nodes = source.nodes
    before = None
    if beside is not None:
        before = beside.placement
        building.undo.append(partial(keep_caches, nodes, before, beside.cache, beside.states, AbortFlag(), placement))
    keep_caches(nodes, placement, cache, states, building.abort, before)


def weights_held(source: ModelSource, home: Numa, on_cpu: Collection[str], spreading: Spreading | None) -> tuple[Holding, ...]:
    """What the weights that the CPU reads take."""
    if spreading is not None:
        return weight_holdings(source, spreading, on_cpu)
    return (Holding(home, "weights", bytes_of_tensors(source, on_cpu), mapped=True),)


def caches_held(home: Numa, cache: KvCache, states: StatePool, spreading: Spreading | None) -> tuple[Holding, ...]:
    """What caches and states on the CPU take."""
    return cache_holdings(home, cache, states) if spreading is None else cache_holdings_on(spreading.placement, cache, states)


def compile_lanes(
    source: ModelSource,
    placement: Placement,
    workers: WorkerPlan,
    plans: tuple[Plan, ...],
    derived: DerivedWeights,
    cache: KvCache,
    states: StatePool,
    choices: StepChoices,
    *,
    room: Callable[[int], Room] | None = None,
    weight_bytes: int = 0,
    beside: Placed | None = None,
    spreading: Spreading | None = None,
) -> CpuPrograms:
    """The CPU's part of the plans. room, weight_bytes: see `CpuPrograms`. spreading: over nodes of memory."""
    k_type, v_type = KV_TYPES.index(placement.k_type), KV_TYPES.index(placement.v_type)
    memory = Memory(source.weights, derived, source.ropes, cache.layers, k_type, v_type, states, choices, spreading)
    return CpuPrograms(
        plans,
        memory,
        workers,
        [group.n_blocks for group in cache.groups],
        n_ctx=source.n_ctx,
        f32=source.f32,
        room=room,
        weight_bytes=weight_bytes,
        beside=None if beside is None else beside.programs,
    )


def bring_to_cpu(
    source: ModelSource,
    names: Collection[str],
    beside: Placed | None,
    building: Building,
    progress: Callable[[int, int], None],
    spreading: Spreading | None = None,
) -> int:
    """Reads what the CPU did not read before into the machine's memory; its bytes. progress(done, total)."""
    new = names if beside is None else set(names) - beside.on_cpu
    if spreading is not None:
        return bring_to_nodes(source, spreading, names, new, building, progress)
    return source.weights.touch(new, progress, building.abort, building.pause, 1 if beside is None else TOUCHERS)


def bytes_of_tensors(source: ModelSource, names: Collection[str]) -> int:
    """Bytes of the named tensors in the file."""
    return sum(source.weights.tensor(name).nbytes for name in names)


def cache_holdings(home: Numa | Gpu, cache: KvCache, states: StatePool) -> tuple[Holding, ...]:
    """What caches and states on the CPU take."""
    needed = sum(group.n_needed * nbytes for group, nbytes in zip(cache.groups, cache.block_bytes, strict=True))
    found = (Holding(home, "kv", needed), Holding(home, "kept windows", cache.nbytes - needed))
    return (*found, Holding(home, "state", states.nbytes)) if states.nbytes else found


def turned_by_cpu(graph: Graph, placement: Placement) -> frozenset[str]:
    """Tensors that ops of the CPU read transposed."""
    uses = (one for one in tensor_uses(graph) if one.use == "taps")
    return frozenset(one.name for one in uses if isinstance(placement.device_of(one.unit), Numa))


def turned_bytes(source: ModelSource, placement: Placement) -> int:
    """Bytes of these, as f32."""
    return sum(4 * source.weights.tensor(name).n_elements for name in turned_by_cpu(source.graph, placement))


def owning_of(source: ModelSource, placed: Placed, earlier: Owning | None = None) -> Owning | None:
    """What takes the weights that the CPU reads into memory of our own. earlier: what did so before, whose work goes on.

    None where there is nothing to take or to give back. On several nodes of memory nothing is taken: there weights are copied to
    begin with, or lie where their pages were faulted.
    """
    here = placed.on_cpu if placed.spreading is None else ()
    shares = {name: share for name, share in shares_read(source.graph).items() if name in here}
    if not shares and earlier is None and not source.weights.pins.nbytes:
        return None
    later = sum(one.nbytes for one in placed.holdings if isinstance(one.device, Numa) and one.owner != "weights")
    return source.weights.owning(shares, len(placed.placement.workers.cores), later, earlier)


def shares_read(graph: Graph) -> dict[str, float]:
    """The part of each matrix that one decoded token reads: all of a linear layer, the chosen experts, a row of the embedding."""
    found = {op.weight: 0.0 for op in graph.ops if isinstance(op, Embed)}
    for op in graph.ops:
        if isinstance(op, Linear):
            found[op.weight] = 1.0
        elif isinstance(op, Experts):
            found |= dict.fromkeys((op.gate, op.up, op.down), op.chosen.width / op.n_experts)
        elif isinstance(op, LatentAttention):
            found |= {one.weight: 1.0 for one in (op.mla.absorb, op.mla.v) if not one.transposed}
    return found


def read_per_token(file: GgufFile, graph: Graph) -> int:
    """Bytes of weights that one decoded token reads: every linear layer, and of the experts those that are chosen."""
    always = {op.weight for op in graph.ops if isinstance(op, Linear)}
    chosen = [(op, name) for op in graph.ops if isinstance(op, Experts) for name in {op.gate, op.up, op.down}]
    heads = [part for op in graph.ops if isinstance(op, LatentAttention) for part in (op.mla.absorb, op.mla.v)]
    return (
        sum(file.tensors[name].nbytes for name in always)
        + sum(file.tensors[name].nbytes * op.chosen.width // op.n_experts for op, name in chosen)
        + sum(head_bytes(part, file.tensors[part.weight].type_id) for part in heads)
    )
