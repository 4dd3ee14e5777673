"""What a model will take on each device, by owner, before anything of it is loaded: pure arithmetic.

The figures are those of the runtime's own ledger (`engine.runtime.residency`), device by device and owner by owner, because both
come from the same functions: caches, states and derived weights from this floor, working memory from lowered plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from engine.arch.cache_groups import groups_of
from engine.arch.spec import Mla, ModelSpec, Rope, Temperature
from engine.arch.units import UnitId
from engine.errors import InvalidRequest, UnsupportedModel
from engine.estimate.cache import BLOCK, CacheGroup, context_of, gpu_layer_bytes, layer_bytes, plan_groups, token_bytes
from engine.estimate.derived import derived_info
from engine.estimate.kernels import kept_by_kernels, kernel_bytes
from engine.estimate.pools import pool_bytes
from engine.estimate.rounding import Pieces, lost_on_gpus, pieces, unit_pieces
from engine.estimate.states import plan_slots, snapshot_budget_of, state_shapes
from engine.estimate.workers import worker_bytes
from engine.gguf.info import TensorInfo
from engine.graph.ops import Attention as AttentionOp
from engine.graph.ops import Experts, Graph, LatentStore
from engine.graph.ops import Rope as RopeOp
from engine.hardware.machine import Machine
from engine.placement.options import KvType, LoadOptions
from engine.placement.placement import Device, Gpu, Numa, Placement
from engine.placement.streaming import CHUNK_BYTES, CHUNKS, placement_for_prefill, ring_bytes, streams
from engine.placement.tensors import TensorUse, tensor_uses
from engine.program.fuse import Phase
from engine.program.lane_latent import ABSORBED_ROWS
from engine.program.lower import DECODE_BUCKETS, lower_lanes
from engine.program.outline import outline
from engine.program.plan import Lane, Plan, crossing_bytes
from engine.quants.formats import BY_ID
from engine.quants.padding import padded_bytes

CONTEXT_BYTES = 720 << 20
"""What a process takes of a GPU beside what it allocates: the driver's context, code of libraries and kernels, captured graphs.
An H200: 620 MiB before anything is on it, 100 more once a model runs."""
LIBRARY_BYTES = 140 << 20
"""What the library of matrix products allocates for itself, 32 MiB on Hopper, and what is left over of segments: an H200 had at
most 110 MiB beside the context and all that the ledger has."""
GPU_ALIGN = 256
"""Where a tensor may begin on a GPU."""
LOGIT_ROWS = DECODE_BUCKETS[-1]
"""Rows of logits that are kept on the device of the head."""


@dataclass(frozen=True, slots=True)
class DeviceBytes:
    """What one device holds, in bytes. weights: of the file; derived: made at load, tables of positions among it; kv: what one
    sequence of the whole context takes; kept_windows: room for other windows than its own; other: what a process takes of a GPU
    and its kernels keep, or what the workers have for themselves. capacity: what can be taken of the device.
    """

    device: Device
    weights: int
    derived: int
    kv: int
    kept_windows: int
    state: int
    workspace: int
    other: int
    capacity: int

    @property
    def used(self) -> int:
        """All of it."""
        return self.weights + self.derived + self.kv + self.kept_windows + self.state + self.workspace + self.other

    @property
    def over(self) -> int:
        """Bytes that are missing, 0 where it fits."""
        return max(0, self.used - self.capacity)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a placement takes; n_ctx: the context it is for. devices: those of the machine, used or not."""

    devices: tuple[DeviceBytes, ...]
    n_ctx: int

    @property
    def fits(self) -> bool:
        """Whether no device is asked for more than it has."""
        return not any(one.over for one in self.devices)

    @property
    def limit(self) -> DeviceBytes:
        """The device with the least room: most bytes over, else fullest."""
        return max(self.devices, key=lambda one: (one.over, one.used / max(1, one.capacity)))

    def of(self, device: Device) -> DeviceBytes:
        """The bytes of one device. Raises: KeyError."""
        found = next((one for one in self.devices if one.device == device), None)
        if found is None:
            raise KeyError(str(device))
        return found


def estimate_bytes(
    spec: ModelSpec,
    graph: Graph,
    tensors: Mapping[str, TensorInfo],
    placement: Placement,
    options: LoadOptions,
    machine: Machine,
    *,
    context_bytes: int = CONTEXT_BYTES,
) -> Estimate:
    """What the model takes on each device of the machine under this placement.

    context_bytes: of each GPU in use that is not emulated.

    Raises:
        InvalidRequest: a context or chunk that no model of this kind takes. PlacementError: see `lower`. UnsupportedModel: a
            tensor of a type that has no kernels.
    """
    return Estimator(spec, graph, tensors, options, machine, context_bytes=context_bytes).estimate(placement)


class Estimator:
    """Estimates of one model with one set of options for one machine: for any number of placements."""

    def __init__(
        self,
        spec: ModelSpec,
        graph: Graph,
        tensors: Mapping[str, TensorInfo],
        options: LoadOptions,
        machine: Machine,
        *,
        context_bytes: int = CONTEXT_BYTES,
    ) -> None:
        """Raises: InvalidRequest, UnsupportedModel; see `estimate_bytes`."""
        self.machine = machine
        self.n_ctx = context_of(spec, options.n_ctx)
        self.uses = tensor_uses(graph)
        self._spec, self._graph, self.tensors, self._options = spec, graph, tensors, options
        self.context_bytes = context_bytes
        self.f32 = options.f32_activations
        self.types = {use.name: tensors[use.name].type_id for use in self.uses}
        self._chunk = min(options.prefill_chunk, self.n_ctx)
        self.largest_chunk = max(self._chunk, DECODE_BUCKETS[-1] + 1)
        self._tables = self.layer_tables()
        self._layer_groups = groups_of(spec)
        self._pieces: dict[tuple[KvType, KvType], dict[UnitId, Pieces]] = {}
        self._known_groups: dict[tuple[KvType, KvType], tuple[CacheGroup, ...]] = {}
        _check(self.uses, tensors, self._chunk)
        matrices = (use for use in self.uses if use.use == "matrix")
        self._unreadable = frozenset(use.unit for use in matrices if BY_ID[self.types[use.name]].path != "fast")

    def estimate(self, placement: Placement) -> Estimate:
        """What the model takes under this placement, with a ring for experts on their way where that fits.

        Raises: PlacementError, see `lower`.
        """
        beside, plans = self.streamed(placement), self.plans(placement)
        found = self._estimate(placement, beside, plans)
        return found if beside is None or found.fits else self._estimate(placement, None, plans)

    def fits_streaming(self, placement: Placement) -> bool:
        """Whether there is room for everything and the ring for experts on their way. Raises: PlacementError, see `lower`."""
        beside = self.streamed(placement)
        if beside is None or not self._estimate(placement, None, ()).fits:
            return False  # not even without working memory, for which plans would have to be lowered
        return self._estimate(placement, beside, self.plans(placement)).fits

    def streamed(self, placement: Placement) -> Placement | None:
        """Where long chunks of prompts are computed whose experts are brought to GPUs; None: there are none."""
        return placement_for_prefill(placement, self.without_gpu_kernels()) if self.streams else None

    @property
    def streams(self) -> bool:
        """Whether long chunks may have experts brought to GPUs at all."""
        return streams(self._options, self.largest_chunk, emulated=any(one.emulated for one in self.machine.gpus))

    def _estimate(self, placement: Placement, beside: Placement | None, plans: tuple[Plan, ...]) -> Estimate:
        if beside is not None:
            plans += (self._lowered(beside, "prefill", self.largest_chunk),)
        here: tuple[Device, ...] = (
            *(Numa(one.node) for one in self.machine.nodes),
            *(Gpu(one.index) for one in self.machine.gpus),
        )
        devices = sorted({*here, *placement.devices})
        return Estimate(tuple(self._device(one, placement, beside, plans) for one in devices), self.n_ctx)

    def plans(self, placement: Placement) -> tuple[Plan, ...]:
        """The plans that need most memory: of decode the one with most rows, those of prefill."""
        return tuple(self._lowered(placement, phase, rows) for phase, rows in self.kinds)

    @cached_property
    def kinds(self) -> tuple[tuple[Phase, int], ...]:
        """(phase, rows) of those plans."""
        latent = any(isinstance(block.mixer, Mla) for block in self._spec.blocks)
        largest = self.largest_chunk
        chunks = (ABSORBED_ROWS, largest) if latent and largest > ABSORBED_ROWS else (largest,)
        return (("decode", DECODE_BUCKETS[-1]), *(("prefill", rows) for rows in chunks))

    def _lowered(self, placement: Placement, phase: Phase, rows: int) -> Plan:
        lanes = outline(self._graph, placement, phase, rows)
        return lower_lanes(lanes, phase, rows, self.types, f32=self.f32)

    def unit_bytes(self, placement: Placement) -> dict[UnitId, int]:
        """Bytes of the tensors of each unit, of a cache or of the states of a layer, to weigh them against each other."""
        found = dict.fromkeys((unit for unit, _ in placement.units), 0)
        for use in self.uses:
            found[use.unit] += self.tensors[use.name].nbytes
        for unit, where in placement.units:
            if unit.kind == "kv":
                found[unit] = sum(self.layer_cache(unit.layer, where, placement))
        slots, _ = plan_slots(self._spec, self.snapshot_budget)
        return found | {UnitId("state", layer): 4 * slots * shape.state_floats for layer, shape in state_shapes(self._spec)}

    def experts(self) -> tuple[Experts, ...]:
        """The ops of all experts."""
        return tuple(op for op in self._graph.ops if isinstance(op, Experts))

    def lost_on_gpus(self, placement: Placement) -> dict[Device, int]:
        """Bytes that the allocator of each GPU in use takes beyond what is asked of it."""
        types = placement.k_type, placement.v_type
        if types not in self._pieces:
            caches = {layer: sum(self.layer_cache(layer, Gpu(0), placement)) for layer in self._layer_groups}
            found = unit_pieces(self._spec, self.uses, self.tensors, caches, f32=self.f32)
            slots, _ = plan_slots(self._spec, self.snapshot_budget)
            for layer, shape in state_shapes(self._spec):
                found[UnitId("state", layer)] = pieces([4 * (slots + 1) * shape.state_floats])
            self._pieces[types] = found
        return lost_on_gpus(self._pieces[types], placement.places, 4 * self._spec.n_embd * self.largest_chunk)

    def without_gpu_kernels(self) -> frozenset[UnitId]:
        """Units with a matrix of a format that GPUs do not read: those that are exact but slow on the CPU too."""
        return self._unreadable

    def _device(self, device: Device, placement: Placement, beside: Placement | None, plans: tuple[Plan, ...]) -> DeviceBytes:
        lanes = [(plan, lane) for plan in plans for lane in plan.lanes if lane.device == device]
        used = bool(lanes) or device in placement.devices
        kv, kept = self._cache(device, placement)
        pooled, biases = pool_bytes(self._graph.ops, self.tensors, placement, device)
        return DeviceBytes(
            device=device,
            weights=self._weights(device, placement) + pooled,
            derived=self._derived(device, beside or placement) + biases if used else 0,
            kv=kv,
            kept_windows=kept,
            state=self._state(device, placement),
            workspace=_working(lanes) + self._passing(device, placement, beside),
            other=self._other(device, placement, lanes) if used else 0,
            capacity=self.capacity(device, sum(isinstance(one, Numa) for one in placement.devices)),
        )

    def _passing(self, device: Device, placement: Placement, beside: Placement | None) -> int:
        """Bytes of the ring through which experts pass on a GPU, or of what is pinned for all rings in memory."""
        if beside is None:
            return 0
        brought = [use for use in self.uses if placement.device_of(use.unit) != beside.device_of(use.unit)]
        if not isinstance(device, Gpu):
            here = any(placement.device_of(use.unit) == device for use in brought)
            return here * CHUNKS * CHUNK_BYTES * len({beside.device_of(use.unit) for use in brought})
        layers: dict[int, list[int]] = {}
        for use in brought:
            if use.use == "matrix" and beside.device_of(use.unit) == device:
                layers.setdefault(use.unit.layer, []).append(self.tensors[use.name].nbytes)
        return ring_bytes(layers.values())

    def capacity(self, device: Device, nodes: int = 1) -> int:
        """Bytes that can be taken of a device by a placement that uses so many nodes of memory."""
        if isinstance(device, Gpu):
            return next((one.capacity for one in self.machine.gpus if one.index == device.index), 0)
        node = self.machine.node(device.node)
        if node is None:
            return 0
        # One node alone is all of the memory to a model that is mapped: the system takes pages where there are some.
        return node.ram_free if nodes > 1 else self.machine.ram_free

    def _here(self, device: Device, placement: Placement) -> Iterator[TensorUse]:
        return (use for use in self.uses if placement.device_of(use.unit) == device)

    def _weights(self, device: Device, placement: Placement) -> int:
        if not isinstance(device, Gpu):
            parts: dict[str, int] = {}  # of a tensor that several units read, the largest
            for use in self.uses:
                if use.use == "matrix":
                    part = placement.dealt(use.unit, self.tensors[use.name].nbytes).get(device, 0)
                    parts[use.name] = max(part, parts.get(use.name, 0))
            return sum(parts.values())
        names = {use.name for use in self._here(device, placement) if use.use == "matrix"}
        found = [self.tensors[name] for name in names]
        return sum(-(-padded_bytes(one.type_name, one.nbytes) // GPU_ALIGN) * GPU_ALIGN for one in found)

    def _derived(self, device: Device, placement: Placement) -> int:
        on_gpu = isinstance(device, Gpu)
        kinds = ("vector", "taps") if on_gpu else ("taps",)
        names = {use.name for use in self._here(device, placement) if use.use in kinds}
        made = 0
        for block in self._spec.blocks:
            if isinstance(block.mixer, Mla) and placement.device_of(UnitId("mixer", block.index)) == device:
                parts = block.mixer.derived
                made += sum(derived_info(part, self.types[part.weight], f32=self.f32).nbytes for part in parts)
        made += sum(4 * self.tensors[name].n_elements for name in names)
        if not on_gpu and device != placement.home:
            return made
        # The tables of all devices are made in the machine's memory and stay there.
        mixers = {unit.layer for unit, where in placement.units if unit.kind == "mixer" and where == device}
        return made + self._table_bytes(mixers if on_gpu else None)

    def _table_bytes(self, layers: set[int] | None) -> int:
        """Bytes of the tables of positions that the named layers (None: all) use, each kind once."""
        found: dict[Rope | Temperature, int] = {}
        for i, one in enumerate(self._tables):
            if layers is None or i in layers:
                found |= one
        return sum(found.values())

    def layer_tables(self) -> tuple[dict[Rope | Temperature, int], ...]:
        """Of each layer, the tables of positions that it uses, and their bytes."""
        n_positions = -(-self.n_ctx // BLOCK) * BLOCK
        found: tuple[dict[Rope | Temperature, int], ...] = tuple({} for _ in self._spec.blocks)
        numbers = {block.index: i for i, block in enumerate(self._spec.blocks)}
        for op in self._graph.ops:
            one: Rope | Temperature | None = None
            if isinstance(op, RopeOp | LatentStore):
                one = op.rope
            elif isinstance(op, AttentionOp):
                one = op.temperature
            if one is not None:
                found[numbers[op.unit.layer]][one] = 4 * n_positions * (one.n_rot if isinstance(one, Rope) else 1)
        return found

    def _groups(self, placement: Placement) -> tuple[CacheGroup, ...]:
        types = placement.k_type, placement.v_type
        if types not in self._known_groups:
            blocks = tuple(BLOCK * one for one in token_bytes(self._spec, *types))
            self._known_groups[types] = plan_groups(self._spec, self.n_ctx, self._chunk, blocks, self.machine.ram_bytes)
        return self._known_groups[types]

    def _cache(self, device: Device, placement: Placement) -> tuple[int, int]:
        """Bytes of keys and values: of one sequence, and of what is kept beside it."""
        found = [0, 0]
        for layer in self._layer_groups:
            unit = UnitId("kv", layer)
            if isinstance(placement.device_of(unit), Gpu) == isinstance(device, Gpu):
                for i, nbytes in enumerate(self.layer_cache(layer, device, placement)):
                    found[i] += placement.dealt(unit, nbytes).get(device, 0)
        return found[0], found[1]

    def layer_cache(self, layer: int, device: Device, placement: Placement) -> tuple[int, int]:
        """The same of one layer, were it on this device."""
        group = self._groups(placement)[self._layer_groups[layer]]
        spare = group.n_blocks - group.n_needed
        if isinstance(device, Gpu):  # one block more: what padding rows write
            block = gpu_layer_bytes(self._spec, layer, placement.k_type, placement.v_type)
            return (group.n_needed + 1) * block, spare * block
        block = sum(layer_bytes(self._spec, layer, placement.k_type, placement.v_type))
        return group.n_needed * block, spare * block

    def _state(self, device: Device, placement: Placement) -> int:
        shapes = state_shapes(self._spec)
        slots = plan_slots(self._spec, self.snapshot_budget)[0] + isinstance(device, Gpu)
        sizes = ((UnitId("state", layer), 4 * slots * shape.state_floats) for layer, shape in shapes)
        return sum(placement.dealt(unit, nbytes).get(device, 0) for unit, nbytes in sizes)

    @property
    def snapshot_budget(self) -> int:
        """Bytes that snapshots of states may take, wherever they lie."""
        return snapshot_budget_of(self.machine, self._options.snapshot_bytes)

    def _other(self, device: Device, placement: Placement, lanes: list[tuple[Plan, Lane]]) -> int:
        if not isinstance(device, Gpu):
            each = sum(
                worker_bytes(lane, plan.max_rows, self.types) * (len(DECODE_BUCKETS) if plan.phase == "decode" else 1)
                for plan, lane in lanes
            )
            return placement.workers.n_workers * each
        logits = 4 * self._spec.n_vocab * LOGIT_ROWS if placement.device_of(UnitId("head")) == device else 0
        logits += self.lost_on_gpus(placement).get(device, 0)
        if any(one.emulated for one in self.machine.gpus if one.index == device.index):
            return logits
        kept = kernel_bytes(kept_by_kernels(lane, plan.max_rows, self.tensors, self.n_ctx, f32=self.f32) for plan, lane in lanes)
        return self.context_bytes + LIBRARY_BYTES + logits + kept


def _working(lanes: list[tuple[Plan, Lane]]) -> int:
    """What a device's lanes compute in, and what rows go through that cross."""
    arena = max((lane.arena_bytes for _, lane in lanes), default=0)
    return arena + max((crossing_bytes(plan, lane) for plan, lane in lanes if isinstance(lane.device, Gpu)), default=0)


def _check(uses: tuple[TensorUse, ...], tensors: Mapping[str, TensorInfo], chunk: int) -> None:
    if chunk < 1:
        raise InvalidRequest("a prefill chunk of 0 tokens was asked for; use at least 1")
    for use in uses:
        if tensors[use.name].type_id not in BY_ID:
            kind = tensors[use.name].type_name
            raise UnsupportedModel(f"tensor {use.name} is of type {kind}, which has no kernels; get the model in another format")
