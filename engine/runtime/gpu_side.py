"""Everything that one GPU holds and does for a model: weights, caches, working memory, its stream and its lanes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from engine.arch.spec import HeadMatrices
from engine.arch.units import UnitId
from engine.errors import UnsupportedModel
from engine.placement.placement import Gpu, Placement
from engine.program.lane_latent import LaneHeads, LaneLatentHeads
from engine.program.lane_ops import LaneEmbed, LaneExpertsDown, LaneExpertsUp, LaneLinear, LaneOp, LaneRoute, matrices
from engine.program.lane_transfer import LaneRecv, LaneSend
from engine.program.plan import Lane, Plan, crossing_bytes
from engine.runtime.cache_groups import CacheGroup
from engine.runtime.choices import StepChoices
from engine.runtime.expert_slots import ExpertSlots
from engine.runtime.gpu import GpuDevice, GpuMemory
from engine.runtime.gpu_bench import NO_HOOKS, Bench, Exchange, Resident, Run
from engine.runtime.gpu_bind import Call, bind
from engine.runtime.gpu_buffers import Formats, LaneTensors, StepShape, lane_tensors
from engine.runtime.gpu_cache import GpuCache
from engine.runtime.gpu_exchange import Copies, Neighbours, taken
from engine.runtime.gpu_inputs import HostInputs, InputLayout, device_inputs
from engine.runtime.gpu_lane import GpuLane, GpuStream, Outputs
from engine.runtime.gpu_seen import Seen
from engine.runtime.gpu_stream import ExpertStream
from engine.runtime.gpu_tally import GpuTally
from engine.runtime.gpu_weights import GpuWeights
from engine.runtime.residency import Holding
from engine.runtime.source import ModelSource
from engine.triton_kernels.table import kernels_for
from engine.triton_kernels.tensors import Tally
from kernels_pyx.executor import AbortFlag

Reader = Literal["embed", "linear", "experts"]
_EXPERTS = (LaneExpertsUp, LaneExpertsDown)
_LINEAR = (LaneLinear, LaneRoute)
_HEADS = (LaneHeads, LaneLatentHeads)


@dataclass(frozen=True, slots=True)
class Streamed:
    """A plan, beside the others, whose experts are brought from the machine's memory on the way, by n_threads threads a GPU.

    abort: stops its steps.
    """

    plan: Plan
    abort: AbortFlag
    n_threads: int


class GpuSide:
    """One GPU's share of a model. `close` frees all of it that no other placement shares."""

    memory: GpuMemory
    seen: Seen
    weights: GpuWeights
    cache: GpuCache
    stream: GpuStream

    def __init__(
        self,
        device: GpuDevice,
        source: ModelSource,
        placement: Placement,
        plans: Sequence[Plan],
        groups: tuple[CacheGroup, ...],
        n_slots: int,
        inputs: InputLayout,
        choices: StepChoices,
        *,
        streamed: Streamed | None = None,
        beside: GpuSide | None = None,
    ) -> None:
        """Takes the room of everything; nothing of the file is read yet. beside: this GPU's share in another placement of the
        model; what lies here in both is shared with it.

        Raises:
            OutOfMemory: with device, bytes asked for and free; nothing stays. UnsupportedModel: a format without GPU kernels.
        """
        self.device = device
        self.name = Gpu(device.index)
        self.memory = GpuMemory(device) if beside is None else beside.memory.beside()
        self.seen = Seen() if beside is None else beside.seen
        self._f32 = source.f32
        self._formats = Formats(source.formats)
        self._inputs = inputs
        lanes = [(plan, lane) for plan in plans if (lane := plan.lane_of(self.name)) is not None]
        ops = all_ops(lane for _, lane in lanes)
        self._passing: Lane | None = None if streamed is None else streamed.plan.lane_of(self.name)
        passing: dict[int, tuple[str, ...]] = {}
        if streamed is not None and self._passing is not None:
            lanes.append((streamed.plan, self._passing))
            own = tensors_of(ops)
            for name, _, unit in read_by(self._passing.ops):
                if unit.kind == "experts" and name not in own:
                    passing[unit.layer] = (*passing.get(unit.layer, ()), name)
        self.experts: ExpertStream | None = None
        try:
            self.kernels = kernels_for(device.torch_device, self.memory.allocator("workspace", "the kernels' workspace"))
            self._check(all_ops(lane for _, lane in lanes), source.formats)
            there = None if beside is None else beside.weights
            shared = (self.memory, source.weights, source.ropes)
            self.weights = GpuWeights(*shared, units_of_tensors(ops), f32=source.f32, beside=there)
            here = layers_on(placement, self.name)
            kept = None if beside is None else beside.cache
            types = (placement.k_type, placement.v_type)
            self.cache = GpuCache(self.memory, source.spec, here, groups, *types, n_slots, kept)
            what = "the working memory"
            arena = max((lane.arena_bytes for _, lane in lanes), default=1)
            self._arena = self.memory.allocate((arena,), torch.uint8, "workspace", what, zeroed=True)
            words = inputs.most_words(plan.max_rows for plan in plans)
            self._words = self.memory.allocate((words,), torch.int32, "workspace", what, zeroed=True)
            crossing = max((crossing_bytes(plan, lane) for plan, lane in lanes), default=0)
            self._crossing = self.memory.allocate((crossing,), torch.uint8, "workspace", "rows on their way")
            pools = [pool for pool in placement.pools if pool.gpu == self.name and placement.pool_of(pool.layer) is not None]
            self.slots = ExpertSlots(self.memory, source.weights, pools, ops, choices.moe.n_experts) if pools else None
            routed = {op.unit.layer for op in ops if isinstance(op, LaneRoute)}
            self.tally = GpuTally(self.memory, choices, routed) if routed else None
            self.stream = GpuStream(device) if beside is None else beside.stream.partner()
            if passing and streamed is not None:
                ring = None if beside is None else beside.experts
                carriers = (streamed.abort, streamed.n_threads)
                self.experts = ExpertStream(self.memory, source.weights, self.weights, passing, *carriers, beside=ring)
        except BaseException:
            self.close()
            raise

    def _check(self, ops: Iterable[LaneOp], types: Mapping[str, str]) -> None:
        for name, kind, unit in read_by(ops):
            why = self.kernels.supports(kind, types[name])
            if why is not None:
                raise UnsupportedModel(f"tensor {name} cannot be used on {self.device}: {why}; place {unit} on the CPU")

    def tensors(self, plan: Plan, lane: Lane, shape: StepShape) -> LaneTensors:
        """What the lane's buffers are in steps of `shape`."""
        return lane_tensors(lane, plan.max_rows, shape, self._arena, self.kernels, self._formats, f32=self._f32)

    def lane(
        self,
        lane: Lane,
        shape: StepShape,
        found: LaneTensors,
        neighbours: Neighbours,
        host: HostInputs,
        host_words: Tensor,
        outputs: Outputs | None,
        begin: Run | None = None,
    ) -> GpuLane:
        """The lane, bound. host_words: the words of `host` as a tensor; outputs: None where the head is elsewhere.

        begin: what comes first in steps that run beside other lanes.
        """
        step = device_inputs(self._inputs, shape, self._words)
        n_words = len(host.words)
        resident = Resident(self.kernels, self.weights, self.cache, self.slots)
        logits = None if outputs is None else outputs.logits
        before_ops, behind_ops = NO_HOOKS, NO_HOOKS
        if self.experts is not None and lane is self._passing:
            before_ops, behind_ops = self.experts.hooks(lane.ops)
        exchange = self._exchange(lane, neighbours)
        tally = self.tally

        def noted(layer: int, n_rows: int) -> Tally | None:
            return None if tally is None else tally.of(layer, n_rows, shape)

        calls = bind(Bench(resident, lane, found, step, logits, exchange, before_ops, behind_ops, noted))
        given, own = host_words[:n_words], self._words[:n_words]
        fetch = None if self.device.emulated else taken(given.view(1, -1), own.view(1, -1))
        copy = fetch or Copies([(given, own)])
        before = [Call("step inputs", UnitId("embed"), copy, ())]
        if begin is not None:
            before.append(Call("step epoch", UnitId("embed"), begin, ()))
        if self.slots is not None:
            before.append(Call("step pools", UnitId("ffn"), self.slots.fetch, ()))
        after = [] if outputs is None or not outputs.n_out else [Call("step logits", UnitId("head"), outputs.add_up, ())]
        if tally is not None:
            before += [Call("step choices", UnitId("ffn"), run, ()) for run in (tally.begin(lane, shape),) if run is not None]
            after += [Call("step choices", UnitId("ffn"), run, ()) for run in (tally.fetch(lane),) if run is not None]
        return GpuLane(self.stream, (*before, *calls, *after), len(before), len(calls))

    def _exchange(self, lane: Lane, neighbours: Neighbours) -> Exchange:
        """Ids of experts that come from a CPU are kept in range: behind its rows lies what was there before."""
        n_experts = {
            op.choice.chosen.name: op.choice.n_experts for op in lane.ops if isinstance(op, LaneExpertsUp | LaneExpertsDown)
        }
        exchange = neighbours.exchange(self.device, self._crossing)

        def run_of(op: LaneSend | LaneRecv, own: tuple[Tensor, ...]) -> Run:
            run = exchange(op, own)
            if isinstance(op, LaneSend):
                return run
            pairs = zip(op.buffers, own, strict=True)
            ids = [(tensor, n_experts[buffer.name]) for buffer, tensor in pairs if buffer.name in n_experts]

            def clamped() -> None:
                run()
                for tensor, n in ids:
                    tensor.clamp_(-1, n - 1)

            return clamped if ids else run

        return run_of

    def holdings(self) -> tuple[Holding, ...]:
        """What the model holds here by now: kernels take more for longer prompts."""
        memory, cache = self.memory, self.cache
        found = (
            Holding(self.name, "weights", memory.held("weights")),
            Holding(self.name, "derived", memory.held("derived")),
            Holding(self.name, "kv", cache.kv_bytes),
            Holding(self.name, "kept windows", cache.kept_bytes),
            Holding(self.name, "state", cache.state_bytes),
            Holding(self.name, "workspace", memory.held("workspace")),
        )
        return tuple(one for one in found if one.nbytes)

    def settle(self) -> None:
        """The placement beside which this was made is no more."""
        self.weights.settle()
        if self.experts is not None:
            self.experts.settle()

    def rest(self) -> None:
        """A step is over: nothing reads the file's memory any more."""
        if self.experts is not None:
            self.experts.rest()

    def close(self) -> None:
        """Drops everything. Idempotent."""
        if self.experts is not None:
            self.experts.close()
            self.experts = None
        for part in ("weights", "cache", "slots", "tally"):
            if getattr(self, part, None) is not None:
                getattr(self, part).close()
        self.tally = None
        for part in ("_arena", "_words", "_crossing", "kernels"):
            if hasattr(self, part):
                delattr(self, part)
        self.memory.close()


def layers_on(placement: Placement, device: object) -> frozenset[int]:
    """The layers whose keys and values, or states, lie on a device."""
    return frozenset(unit.layer for unit, where in placement.units if unit.kind in ("kv", "state") and where == device)


def all_ops(lanes: Iterable[Lane]) -> list[LaneOp]:
    """The ops of all lanes, those that several have in common once."""
    different = {id(lane.ops): lane.ops for lane in lanes}
    return [op for ops in different.values() for op in ops]


def tensors_of(ops: Iterable[LaneOp]) -> frozenset[str]:
    """The tensors of the file whose bytes the ops read as they are, all of them; not those of which pools have copies."""
    return frozenset(units_of_tensors(ops))


def units_of_tensors(ops: Iterable[LaneOp]) -> dict[str, UnitId]:
    """These tensors, each with the unit that it moves with: the first that reads it."""
    found: dict[str, UnitId] = {}
    whole = [op for op in ops if not (isinstance(op, _EXPERTS) and op.pooled)]
    for name, _, unit in read_by(whole):
        found.setdefault(name, unit)
    return found


def read_by(ops: Iterable[LaneOp]) -> list[tuple[str, Reader, UnitId]]:
    """(tensor, what kind of op reads it, the op's unit)."""
    found: list[tuple[str, Reader, UnitId]] = []
    for op in ops:
        if isinstance(op, LaneEmbed):
            found.append((op.weight, "embed", op.unit))
        elif isinstance(op, _EXPERTS):
            found += [(name, "experts", op.unit) for name in matrices(op)]
        elif isinstance(op, _LINEAR):
            found += [(name, "linear", op.unit) for name in matrices(op)]
        elif isinstance(op, _HEADS):
            found += [(part.weight, "linear", op.unit) for part in head_parts([op]) if not part.transposed]
    return found


def head_parts(ops: Iterable[LaneOp]) -> list[HeadMatrices]:
    """The matrices of heads that the ops multiply with."""
    found: list[HeadMatrices] = []
    for op in ops:
        if isinstance(op, LaneHeads):
            found.append(op.matrices)
        elif isinstance(op, LaneLatentHeads):
            found += [op.mla.k, op.mla.v]
    return found
