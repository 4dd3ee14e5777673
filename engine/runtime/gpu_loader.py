"""A model over several devices: what goes where, in the order in which it is taken, so that a lack of room shows before anything
is read. Imports torch; `loader` comes here only for placements with a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from engine.arch.spec import DeltaNet, HeadMatrices, ModelSpec
from engine.errors import OutOfMemory
from engine.estimate.states import MAX_SNAPSHOT_BYTES, SNAPSHOT_SHARE
from engine.gguf.info import GgufFile
from engine.graph.ops import Graph
from engine.placement.options import KV_TYPES, LoadOptions
from engine.placement.placement import Device, Gpu, Numa, Placement, WorkerPlan
from engine.program.lane_ops import LaneEmbed, LaneOp, LaneRows
from engine.program.lane_transfer import LaneRecv, LaneSend
from engine.program.plan import Plan
from engine.quants.formats import BY_ID
from engine.runtime.buckets import lower_all
from engine.runtime.choices import StepChoices
from engine.runtime.cpu_programs import CpuPrograms, cpu_lane
from engine.runtime.derived import DerivedWeights
from engine.runtime.descriptor import Memory
from engine.runtime.gpu import GpuDevice, open_gpus
from engine.runtime.gpu_executor import GpuExecutor
from engine.runtime.gpu_inputs import InputLayout
from engine.runtime.gpu_side import GpuSide, Streamed, head_parts, layers_on, tensors_of
from engine.runtime.kv_cache import BLOCK, KvCache
from engine.runtime.pinned import Pinned
from engine.runtime.residency import Holding
from engine.runtime.rope_table import RopeTables
from engine.runtime.states import StatePool, plan_slots, snapshot_budget
from engine.runtime.stream_choice import StreamChoice
from engine.runtime.stream_plan import load_of, streamed_plan, without_room
from engine.runtime.weights import Weights
from kernels_pyx.executor import AbortFlag

Progress = Callable[[str, int, int], None]
FETCHERS = 4
LEFT_TO_DRIVERS = 2


@dataclass(frozen=True, slots=True)
class Placed:
    """A model over devices, ready to step."""

    executor: GpuExecutor
    cache: KvCache
    states: StatePool
    state_slots: tuple[int, int]
    holdings: tuple[Holding, ...]
    names: Mapping[Device, str]
    on_cpu: frozenset[str]
    """The tensors that the CPU reads."""
    notes: tuple[str, ...] = ()
    """What of this placement could not be done."""


def load_placed(
    file: GgufFile,
    spec: ModelSpec,
    graph: Graph,
    options: LoadOptions,
    placement: Placement,
    n_ctx: int,
    weights: Weights,
    types: dict[str, int],
    undo: list[Callable[[], None]],
    progress: Progress,
    abort: AbortFlag,
) -> Placed:
    """Takes room on every device, compiles, brings the weights, warms up. undo: what gives back what was taken, for failures.

    Raises:
        OutOfMemory, PlacementError, UnsupportedModel, GgufError, ModelChanged, InvalidRequest, Cancelled, DeviceLost.
    """
    devices = open_gpus(where.index for where in placement.devices if isinstance(where, Gpu))
    f32, chunk = options.f32_activations, min(options.prefill_chunk, n_ctx)
    plans = lower_all(spec, graph, placement, types, chunk, f32=f32)
    home = next((where for where in placement.devices if isinstance(where, Numa)), Numa(0))
    cpu_layers = frozenset(range(spec.n_layers)) - frozenset().union(
        *(layers_on(placement, Gpu(device.index)) for device in devices)
    )
    cache = KvCache(spec, n_ctx, placement.k_type, placement.v_type, chunk, layers=cpu_layers)
    undo.append(cache.close)
    slots = plan_slots(spec, _snapshot_budget(spec, options, devices, cpu_layers))
    states = StatePool(spec, slots[0], layers=cpu_layers)
    undo.append(states.close)
    ropes = RopeTables(weights, -(-n_ctx // BLOCK) * BLOCK)
    choices = StepChoices(spec)
    inputs = InputLayout(
        -(-n_ctx // BLOCK), tuple(group.n_blocks for group in cache.groups) or (0,), slots[0] if slots[0] else None
    )
    formats = {name: BY_ID[one].name for name, one in types.items()}
    formats |= {tensor.name: tensor.type_name for tensor in file.tensors.values() if tensor.name not in formats}
    streamed = streamed_plan(graph, placement, plans, types, options, devices)
    carriers = max(1, (len(placement.workers.cores) - 2) // len(devices))

    def made(plan: Plan | None) -> list[GpuSide]:
        sides: list[GpuSide] = []
        beside = None if plan is None else Streamed(plan, abort, carriers)
        shared = (spec, placement, plans, weights, ropes, formats, cache.groups, placement.k_type, placement.v_type, slots[0])
        try:
            for device in devices:
                sides.append(GpuSide(device, *shared, inputs, choices, streamed=beside, f32=f32))
        except BaseException:
            for side in sides:
                side.close()
            raise
        return sides

    notes: tuple[str, ...] = ()
    try:
        sides = made(streamed)
    except OutOfMemory as error:
        if streamed is None:
            raise
        notes, streamed = (without_room(error),), None
        sides = made(None)
    undo += [side.close for side in sides]
    all_plans = plans if streamed is None else (*plans, streamed)
    lanes = [lane for plan in all_plans if (lane := cpu_lane(plan)) is not None]
    cpu_ops = [op for lane in lanes for op in lane.ops]
    derived = DerivedWeights(weights, _turned(cpu_ops), abort, f32=f32)
    cpu = None
    if lanes:
        workers = workers_beside(placement.workers, cpu_ops, options, devices)
        cpu = _compile(all_plans, placement, workers, weights, derived, ropes, cache, states, choices, n_ctx, devices, f32=f32)
        undo.append(cpu.close)
    brings = [side.experts for side in sides if side.experts is not None]
    load = None
    if streamed is not None and brings:
        most = max(one.nbytes for one in brings)
        load = load_of(graph, streamed, placement, most, len(placement.workers.cores))
    choice = StreamChoice(options.stream_experts, load)
    executor = GpuExecutor(spec, plans, tuple(sides), cpu, states, inputs, choices, abort, streamed, choice)
    undo.append(executor.close)
    on_cpu = tensors_of(cpu_ops)
    mapped = _bring(weights, on_cpu, sides, progress, abort)
    if brings:
        choice.measured(min(one.tune() for one in brings))
    executor.warm_up(lambda done, total: progress("warmup", done, total))
    holdings = [
        *(Holding(home, "weights", mapped, mapped=True) for _ in range(bool(mapped))),
        Holding(home, "derived", ropes.nbytes + derived.nbytes + weights.derived_bytes),
        *_cpu_holdings(home, cache, states),
        *(Holding(home, "workspace", cpu.workspace_bytes) for _ in range(cpu is not None) if cpu is not None),
    ]
    if brings:
        holdings.append(Holding(home, "workspace", sum(one.pinned_bytes for one in brings)))
    names: Mapping[Device, str] = {side.name: side.device.name for side in sides}
    return Placed(executor, cache, states, slots, tuple(holdings), names, on_cpu, notes + executor.notes)


def _turned(ops: Sequence[LaneOp]) -> tuple[HeadMatrices, ...]:
    """What the CPU's ops read that the file holds the wrong way round."""
    return tuple(dict.fromkeys(part for part in head_parts(ops) if part.transposed))


def _compile(
    plans: tuple[Plan, ...],
    placement: Placement,
    workers: WorkerPlan,
    weights: Weights,
    derived: DerivedWeights,
    ropes: RopeTables,
    cache: KvCache,
    states: StatePool,
    choices: StepChoices,
    n_ctx: int,
    devices: tuple[GpuDevice, ...],
    *,
    f32: bool,
) -> CpuPrograms:
    k_type, v_type = KV_TYPES.index(placement.k_type), KV_TYPES.index(placement.v_type)
    memory = Memory(weights, derived, ropes, cache.layers, k_type, v_type, states, choices)
    n_blocks = [group.n_blocks for group in cache.groups]
    ops = [op for plan in plans if (lane := cpu_lane(plan)) is not None for op in lane.ops]
    nbytes = sum(weights.tensor(name).nbytes for name in tensors_of(ops))
    room = partial(Pinned, devices=devices)
    return CpuPrograms(plans, memory, workers, n_blocks, n_ctx=n_ctx, f32=f32, room=room, weight_bytes=nbytes)


def workers_beside(workers: WorkerPlan, ops: Sequence[LaneOp], options: LoadOptions, devices: Sequence[GpuDevice]) -> WorkerPlan:
    """Who works beside GPUs: a few where there is nothing but rows of the embedding to fetch, which every token waits for.

    Unless a number was asked for, two cores are left to the driver of real GPUs and to the thread that waits for a device, those
    among them that the plan keeps back. With all cores spinning, an exchange takes twenty times as long.
    """
    if all(isinstance(op, LaneEmbed | LaneRows | LaneSend | LaneRecv) for op in ops):
        return WorkerPlan(workers.cores[:FETCHERS])
    if options.n_threads or all(device.emulated for device in devices):
        return workers
    too_many = max(0, LEFT_TO_DRIVERS - len(workers.kept))
    return WorkerPlan(workers.cores[: max(1, len(workers.cores) - too_many)], workers.kept)


def _snapshot_budget(spec: ModelSpec, options: LoadOptions, devices: tuple[GpuDevice, ...], cpu_layers: frozenset[int]) -> int:
    """Snapshots lie where the states of their layers lie: on a GPU they take no more of it than of the machine's memory."""
    budget = snapshot_budget(options.snapshot_bytes)
    states = {block.index for block in spec.blocks if isinstance(block.mixer, DeltaNet)}
    if options.snapshot_bytes or states <= cpu_layers:
        return budget
    return min(budget, MAX_SNAPSHOT_BYTES, *(int(SNAPSHOT_SHARE * device.capacity) for device in devices))


def _bring(
    weights: Weights,
    on_cpu: frozenset[str],
    sides: Sequence[GpuSide],
    progress: Progress,
    abort: AbortFlag,
) -> int:
    """Reads all weights to where they belong; the bytes on the CPU."""
    total = sum(weights.tensor(name).nbytes for name in on_cpu) + sum(side.weights.nbytes for side in sides)
    done = 0
    progress("weights", 0, total)
    for side in sides:
        before = done
        side.weights.upload(lambda n, before=before: progress("weights", before + n, total), abort)  # type: ignore[misc]
        done += side.weights.nbytes
    return weights.touch(on_cpu, lambda n, _: progress("weights", done + n, total), abort)


def _cpu_holdings(home: Numa, cache: KvCache, states: StatePool) -> list[Holding]:
    needed = sum(group.n_needed * nbytes for group, nbytes in zip(cache.groups, cache.block_bytes, strict=True))
    found = [Holding(home, "kv", needed), Holding(home, "kept windows", cache.nbytes - needed)]
    return found + ([Holding(home, "state", states.nbytes)] if states.nbytes else [])
