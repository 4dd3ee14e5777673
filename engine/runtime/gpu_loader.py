"""A model over several devices: what goes where, in the order in which it is taken, so that a lack of room shows before anything
is read. Imports torch; `build` comes here only for placements with a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from engine.arch.spec import HeadMatrices
from engine.errors import Cancelled, OutOfMemory
from engine.placement.placement import Gpu, Placement, WorkerPlan
from engine.program.lane_ops import LaneOp
from engine.program.plan import Plan
from engine.runtime.bringing import Bringing
from engine.runtime.build import (
    bytes_of_tensors,
    caches_held,
    compile_lanes,
    keep_on_nodes,
    plans_of,
    spread_here,
    turned_by_cpu,
    turned_bytes,
    weights_held,
)
from engine.runtime.choices import StepChoices
from engine.runtime.cpu_programs import CpuPrograms, cpu_lane
from engine.runtime.derived import DerivedWeights
from engine.runtime.garbage import keep_imports_out
from engine.runtime.gpu import GpuDevice, open_gpus
from engine.runtime.gpu_direct import CudaHost
from engine.runtime.gpu_executor import GpuExecutor
from engine.runtime.gpu_inputs import InputLayout
from engine.runtime.gpu_peers import Peers
from engine.runtime.gpu_side import GpuSide, Streamed, all_ops, head_parts, layers_on, tensors_of
from engine.runtime.gpu_stream import ExpertStream
from engine.runtime.gpu_warmup import Shapes
from engine.runtime.kv_cache import BLOCK, KvCache
from engine.runtime.on_nodes import notes_of
from engine.runtime.pinned import Pinned
from engine.runtime.placed import Placed
from engine.runtime.residency import Holding
from engine.runtime.source import Building, ModelSource
from engine.runtime.spreading import Spreading
from engine.runtime.states import StatePool, plan_slots
from engine.runtime.stream_choice import StreamChoice
from engine.runtime.stream_plan import load_of, streamed_plan, without_room
from engine.runtime.workers import workers_beside


@dataclass(frozen=True, slots=True)
class _Earlier:
    """What GPUs have of the model in the placement that runs: shares by index, what is known of them, shapes in use."""

    sides: Mapping[int, GpuSide]
    peers: Peers | None
    shapes: Shapes

    @staticmethod
    def of(beside: Placed | None) -> _Earlier:
        if beside is None or not isinstance(beside.executor, GpuExecutor):
            return _Earlier({}, None, ())
        executor = beside.executor
        return _Earlier({side.device.index: side for side in executor.sides}, executor.peers, executor.warmer.in_use)

    def open(self, indices: Iterable[int]) -> tuple[GpuDevice, ...]:
        """The devices; those in use keep what was found out when they were opened."""
        wanted = sorted(set(indices))
        new = {one.index: one for one in open_gpus(wanted)} if set(wanted) - set(self.sides) else {}
        return tuple(self.sides[i].device if i in self.sides else new[i] for i in wanted)

    def peers_of(self, devices: Sequence[GpuDevice]) -> Peers | None:
        """None: they have to be tried."""
        return self.peers if all(one.index in self.sides for one in devices) else None


def load_placed(source: ModelSource, placement: Placement, building: Building, beside: Placed | None = None) -> Placed:
    """Takes room on every device, compiles, brings the weights, warms up. beside: see `build`.

    Raises:
        OutOfMemory, PlacementError, UnsupportedModel, GgufError, ModelChanged, InvalidRequest, Cancelled, DeviceLost.
    """
    spec, graph, options, undo = source.spec, source.graph, source.options, building.undo
    earlier = _Earlier.of(beside)
    devices = earlier.open(where.index for where in placement.devices if isinstance(where, Gpu))
    keep_imports_out()
    if real := next((device for device in devices if not device.emulated), None):
        source.weights.pins.use(CudaHost(real))
    lap = building.laps.lap
    with lap("plans"):
        plans = plans_of(source, placement)
    home = placement.home
    cpu_layers = frozenset(range(spec.n_layers)) - frozenset().union(
        *(layers_on(placement, Gpu(device.index)) for device in devices)
    )
    kinds = (placement.k_type, placement.v_type)
    kept = (None, None) if beside is None else (beside.cache, beside.states)
    with lap("caches"):
        cache = KvCache(spec, source.n_ctx, *kinds, source.chunk, layers=cpu_layers, beside=kept[0])
    undo.append(cache.close)
    slots = beside.state_slots if beside is not None else plan_slots(spec, source.snapshot_budget)
    states = StatePool(spec, slots[0], layers=cpu_layers, beside=kept[1])
    undo.append(states.close)
    scratch = tuple(group.n_blocks for group in cache.groups) or (0,)
    inputs = InputLayout(-(-source.n_ctx // BLOCK), scratch, slots[0] if slots[0] else None)
    choices = StepChoices(spec)
    with lap("plans"):
        streamed = source.plans.of(
            placement, lambda: streamed_plan(graph, placement, plans, source.types, options, devices), "streamed"
        )
    carriers = max(1, (len(placement.workers.cores) - 2) // len(devices))

    keeper = None if beside is None else beside.executor.pools
    learned = placement if keeper is None else keeper.learned(placement)

    def made(plan: Plan | None) -> list[GpuSide]:
        sides: list[GpuSide] = []
        passing = None if plan is None else Streamed(plan, building.steps, carriers)
        shared = (source, learned, plans, cache.groups, slots[0], inputs, choices)
        try:
            for device in devices:
                sides.append(GpuSide(device, *shared, streamed=passing, beside=earlier.sides.get(device.index)))
        except BaseException:
            for side in sides:
                side.close()
            raise
        return sides

    notes: tuple[str, ...] = ()
    with lap("GPUs' room"):
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
    cpu_ops = all_ops(lanes)
    known = None if beside is None else beside.derived
    with lap("derived"):
        derived = DerivedWeights(source.weights, _turned(cpu_ops), building.abort, f32=source.f32, beside=known)
    on_cpu = tensors_of(cpu_ops)
    cpu, spreading = None, None
    workers, memories = placement.workers, (derived, cache, states, choices)
    if lanes:
        workers = workers_beside(placement.workers, cpu_ops, source.options, devices)
        spreading = spread_here(source, placement, on_cpu, building, beside)
    with Bringing(source, on_cpu, sides, building, beside, spreading) as bringing:
        if lanes:
            with lap("programs"):
                cpu = _compile(source, placement, workers, all_plans, on_cpu, *memories, devices, beside, spreading)
            undo.append(cpu.close)
        keep_on_nodes(source, placement, cache, states, building, beside)
        brings = [side.experts for side in sides if side.experts is not None]
        load = None
        if streamed is not None and brings:
            most = max(one.nbytes for one in brings)
            load = load_of(graph, streamed, placement, most, len(placement.workers.cores))
        choice = StreamChoice(options.stream_experts, load)
        known_peers = earlier.peers_of(devices)
        with lap("executor"):
            executor = GpuExecutor(
                spec, plans, tuple(sides), cpu, states, inputs, choices, building.steps, streamed, choice, known_peers
            )
        undo.append(executor.close)
        if beside is None:
            bringing.wait()
        if brings and beside is None:  # beside steps it would take their time: steps themselves show how fast experts come
            with lap("tune"):
                _tune(brings, choice, building)
        executor.warmer.warm_up(
            lambda done, total: building.progress("warmup", done, total),
            building.abort,
            earlier.shapes,
            beside={device.index for device in devices} <= set(earlier.sides),
            laps=building.laps,
            there=bringing.wait,
        )
        bringing.wait()
    holdings = [
        *(one for one in weights_held(source, home, on_cpu, spreading) if one.nbytes),
        Holding(home, "derived", source.ropes.nbytes + derived.nbytes + turned_bytes(source, placement)),
        *caches_held(home, cache, states, spreading),
        *(Holding(home, "workspace", one.workspace_bytes) for one in (cpu,) if one is not None),
    ]
    if brings:
        holdings.append(Holding(home, "workspace", sum(one.pinned_bytes for one in brings)))
    return Placed(
        placement,
        executor,
        cpu,
        derived,
        cache,
        states,
        slots,
        tuple(holdings),
        on_cpu,
        turned_by_cpu(graph, placement),
        {side.name: side.device.name for side in sides},
        notes + executor.notes + notes_of(source, spreading, cpu),
        bringing.nbytes,
        sum(side.weights.nbytes + (0 if side.slots is None else side.slots.nbytes) for side in sides),
        spreading,
    )


def _turned(ops: Sequence[LaneOp]) -> tuple[HeadMatrices, ...]:
    """What the CPU's ops read that the file holds the wrong way round."""
    return tuple(dict.fromkeys(part for part in head_parts(ops) if part.transposed))


def _compile(
    source: ModelSource,
    placement: Placement,
    workers: WorkerPlan,
    plans: tuple[Plan, ...],
    on_cpu: frozenset[str],
    derived: DerivedWeights,
    cache: KvCache,
    states: StatePool,
    choices: StepChoices,
    devices: tuple[GpuDevice, ...],
    beside: Placed | None,
    spreading: Spreading | None,
) -> CpuPrograms:
    return compile_lanes(
        source,
        placement,
        workers,
        plans,
        derived,
        cache,
        states,
        choices,
        room=partial(Pinned, devices=devices),
        weight_bytes=bytes_of_tensors(source, on_cpu),
        beside=beside,
        spreading=spreading,
    )


def _tune(brings: Sequence[ExpertStream], choice: StreamChoice, building: Building) -> None:
    """Finds out how fast experts come. Beside steps, one that is stopped stops this too, and it stays a guess."""
    try:
        choice.measured(min(one.tune() for one in brings))
    except Cancelled:
        if building.abort.is_set or building.abort is building.steps:
            raise
