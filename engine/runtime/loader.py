"""A model file to a model that steps: maps, allocates, compiles, proves itself on one token; undoes everything on failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from engine.arch.cache_groups import windows
from engine.arch.spec import ModelSpec
from engine.errors import DeviceLost, EngineError, OutOfDeviceMemory, OutOfMemory, PlacementError, UnsupportedModel
from engine.estimate.memory import Estimator
from engine.estimate.moves import with_move
from engine.gguf.info import GgufFile
from engine.graph.ops import Embed, Experts, Graph, LatentAttention, Linear
from engine.graph.reference import ReferenceModel
from engine.hardware.machine import this_machine
from engine.placement.options import LoadOptions
from engine.placement.placement import Device, Gpu, Numa, Placement, default_placement
from engine.runtime.cache_groups import BLOCK, CacheGroup, plan_groups
from engine.runtime.choice import choose_placement
from engine.runtime.choices import Chosen
from engine.runtime.derived import head_bytes
from engine.runtime.executor import Executor, PlanRunner
from engine.runtime.kv_cache import KvCache, context_of
from engine.runtime.owning import Owning
from engine.runtime.residency import Holding, Residency
from engine.runtime.states import StatePool, plan_slots, snapshot_budget
from engine.runtime.step import StepBatch
from engine.runtime.tally import ExpertTally
from engine.runtime.weights import Weights
from kernels_pyx.executor import AbortFlag

Progress = Callable[[str, int, int], None]
NO_NAMES: Mapping[Device, str] = {}


class LoadedModel:
    """A model in memory. Used by one thread at a time; `close` it when done."""

    def __init__(
        self,
        spec: ModelSpec,
        n_ctx: int,
        groups: tuple[CacheGroup, ...],
        weights: Weights,
        cache: KvCache | None,
        states: StatePool | None,
        state_slots: tuple[int, int],
        stepper: PlanRunner | ReferenceModel,
        residency: Residency,
        notes: tuple[str, ...] = (),
        names: Mapping[Device, str] = NO_NAMES,
        owning: Owning | None = None,
        on_gpus: Callable[[], tuple[Holding, ...]] = lambda: (),
        placement: Placement | None = None,
    ) -> None:
        """notes: what of the placement that was asked for could not be met, one sentence each. names: of GPUs.

        on_gpus: what is held there by now. placement: None for the reference model.
        """
        self.notes = notes
        self.placement = placement
        self._names = names
        self.spec = spec
        self.n_ctx = n_ctx
        self.cache_groups = groups
        self._residency = residency
        self._on_gpus = on_gpus
        self._owning = owning
        self._weights = weights
        self._cache = cache
        self._states = states
        self.state_slots = state_slots
        self._stepper = stepper
        runner = self.executor
        self.experts = ExpertTally(runner.choices.moe) if runner is not None and runner.choices.moe.layers else None
        """How often each expert was passed; None: the model has none, or is the reference."""

    def step(self, batch: StepBatch) -> npt.NDArray[np.float32]:
        """Logits [n_out, n_vocab] f32 of the rows that the batch names.

        Raises:
            Cancelled: the abort flag was set. ModelChanged: the file lost bytes while it was read; the logits are void.
            EngineError: values that are not finite. InvalidRequest: the batch does not fit.
        """
        try:
            logits = self._stepper.step(batch)
        except EngineError:
            self._weights.check_lost()  # explains every other failure
            raise
        self._weights.check_lost()
        if self.experts is not None:
            self.experts.add(self.chosen)
        if self._owning is not None:
            self._owning.beside_steps(self.last_step_s)
        return logits

    @property
    def chosen(self) -> tuple[Chosen, ...]:
        """Which experts the rows of the last step passed."""
        return () if self.executor is None else self.executor.choices.last

    @property
    def residency(self) -> Residency:
        """What lies where by now."""
        found = self._residency if self._owning is None else self._residency.owned(self._owning.owned_bytes)
        return replace(found, holdings=found.holdings + self._on_gpus())

    @property
    def settling(self) -> bool:
        """Whether weights are still to be taken into memory of our own. Steps run at any time, a little slower until then."""
        return self._owning is not None and not self._owning.done

    @property
    def owns(self) -> bool:
        """Whether weights lie in memory of our own, which the system cannot take."""
        return self._owning is not None and self._owning.owned_bytes > 0

    def settle(self) -> None:
        """For when there are no steps to make: takes more weights, or gives some back where the system is short of memory."""
        if self._owning is not None:
            self._owning.advance()
            self._owning.relieve()

    @property
    def executor(self) -> PlanRunner | None:
        """What runs the plans: plans and timings. None for the reference model."""
        return None if isinstance(self._stepper, ReferenceModel) else self._stepper

    @property
    def last_step_s(self) -> float:
        """Seconds that the last step spent in its program; 0 for the reference model."""
        return 0.0 if self.executor is None else self.executor.last_step_s

    @property
    def shares(self) -> tuple[tuple[Device, str, int], ...]:
        """(device, what its maker calls it, bytes held there) of every device in use."""
        held: Counter[Device] = Counter()
        for holding in self.residency.holdings:
            held[holding.device] += holding.nbytes
        return tuple((device, self._names.get(device, ""), held[device]) for device in sorted(held))

    def check_identity(self) -> None:
        """Raises ModelChanged when the file is no longer the one that was loaded. Takes microseconds."""
        self._weights.check_identity()

    def close(self) -> None:
        """Gives memory and threads back. Idempotent."""
        self._stepper.close()
        if self._owning is not None:
            self._owning.close()
        if self._cache is not None:
            self._cache.close()
        if self._states is not None:
            self._states.close()
        self._weights.close()


def load(
    file: GgufFile, spec: ModelSpec, graph: Graph, options: LoadOptions, progress: Progress, abort: AbortFlag
) -> LoadedModel:
    """The model, ready to step. progress(phase, done, total): `weights` in bytes really in memory, then `warmup` in steps.

    `abort` stops the loading, and later every step.

    Raises:
        Cancelled: the flag was set. OutOfMemory, UnsupportedModel, GgufError, ModelChanged, InvalidRequest: one sentence each.
        EngineError: the first token came out wrong. Nothing stays in memory.
    """
    n_ctx = context_of(spec, options.n_ctx)
    undo: list[Callable[[], None]] = []
    try:
        weights = Weights(file)
        undo.append(weights.close)
        if options.reference:
            reference = ReferenceModel(file, spec, graph, block=BLOCK, stop=lambda: abort.is_set)
            undo.append(reference.close)
            slots = plan_slots(spec, snapshot_budget(options.snapshot_bytes))
            groups = plan_groups(spec, n_ctx, min(options.prefill_chunk, n_ctx), (0,) * len(windows(spec)))
            model = LoadedModel(spec, n_ctx, groups, weights, None, None, slots, reference, Residency((), 0))
        else:
            model = _compiled(file, spec, graph, options, n_ctx, weights, undo, progress, abort)
        progress("warmup", 0, 1)
        _smoke_test(model)
        if model.experts is not None:
            model.experts.clear()
        progress("warmup", 1, 1)
    except BaseException:
        for step in reversed(undo):
            step()
        raise
    return model


def _compiled(
    file: GgufFile,
    spec: ModelSpec,
    graph: Graph,
    options: LoadOptions,
    n_ctx: int,
    weights: Weights,
    undo: list[Callable[[], None]],
    progress: Progress,
    abort: AbortFlag,
) -> LoadedModel:
    names = _matrices(graph)
    for name, n_in in names.items():
        weights.matrix(name, n_in)
    types = {name: file.tensors[name].type_id for name in names}
    placement, notes = choose_placement(file, spec, graph, options)
    if not any(isinstance(device, Gpu) for device in placement.devices):
        return _on_cpu(file, spec, graph, options, placement, notes, n_ctx, weights, types, undo, progress, abort)
    before = len(undo)
    try:
        return _on_devices(file, spec, graph, options, placement, notes, n_ctx, weights, types, undo, progress, abort)
    except (DeviceLost, OutOfMemory, PlacementError, UnsupportedModel) as error:
        if options.placement:
            raise
        # Nobody asked for GPUs: the model runs all the same.
        while len(undo) > before:
            undo.pop()()
        told = (*notes, f"No GPU is used: {error}.")
        return _on_cpu(
            file, spec, graph, options, default_placement(spec, options), told, n_ctx, weights, types, undo, progress, abort
        )


def _on_devices(
    file: GgufFile,
    spec: ModelSpec,
    graph: Graph,
    options: LoadOptions,
    placement: Placement,
    notes: tuple[str, ...],
    n_ctx: int,
    weights: Weights,
    types: dict[str, int],
    undo: list[Callable[[], None]],
    progress: Progress,
    abort: AbortFlag,
) -> LoadedModel:
    # Not with the module: torch takes a second to import and hundreds of megabytes, which a CPU alone has no use for.
    from engine.runtime.gpu_loader import load_placed

    machine = this_machine()  # as it was before anything was taken
    try:
        placed = load_placed(file, spec, graph, options, placement, n_ctx, weights, types, undo, progress, abort)
    except OutOfDeviceMemory as error:
        raise with_move(error, Estimator(spec, graph, file.tensors, options, machine), placement) from error
    owning = None
    if placed.on_cpu:
        shares = {name: share for name, share in _shares(graph).items() if name in placed.on_cpu}
        later = sum(one.nbytes for one in placed.holdings if isinstance(one.device, Numa) and one.owner != "weights")
        owning = weights.owning(shares, len(placement.workers.cores), later)
    return LoadedModel(
        spec,
        n_ctx,
        placed.cache.groups,
        weights,
        placed.cache,
        placed.states,
        placed.state_slots,
        placed.executor,
        Residency(placed.holdings, _read_per_token(file, graph)),
        (*notes, *placed.notes),
        placed.names,
        owning,
        placed.executor.holdings,
        placement,
    )


def _on_cpu(
    file: GgufFile,
    spec: ModelSpec,
    graph: Graph,
    options: LoadOptions,
    placement: Placement,
    notes: tuple[str, ...],
    n_ctx: int,
    weights: Weights,
    types: dict[str, int],
    undo: list[Callable[[], None]],
    progress: Progress,
    abort: AbortFlag,
) -> LoadedModel:
    chunk = min(options.prefill_chunk, n_ctx)
    cache = KvCache(spec, n_ctx, placement.k_type, placement.v_type, chunk)
    undo.append(cache.close)
    slots = plan_slots(spec, snapshot_budget(options.snapshot_bytes))
    states = StatePool(spec, slots[0])
    undo.append(states.close)
    executor = Executor(
        spec,
        graph,
        placement,
        weights,
        cache,
        states,
        types,
        abort,
        n_ctx=n_ctx,
        prefill_chunk=chunk,
        f32=options.f32_activations,
    )
    undo.append(executor.close)
    nbytes = weights.touch(types, lambda done, total: progress("weights", done, total), abort)
    home = placement.devices[0]
    later = (
        Holding(home, "kv", sum(group.n_needed * group.block_bytes for group in cache.groups)),
        Holding(home, "kept windows", sum((group.n_blocks - group.n_needed) * group.block_bytes for group in cache.groups)),
        *((Holding(home, "state", states.nbytes),) if states.nbytes else ()),
        Holding(home, "workspace", executor.workspace_bytes),
    )
    holdings = (
        Holding(home, "weights", nbytes, mapped=True),
        Holding(home, "derived", executor.ropes.nbytes + executor.derived.nbytes + weights.derived_bytes),
        *later,
    )
    owning = weights.owning(_shares(graph), len(placement.workers.cores), sum(one.nbytes for one in later))
    residency = Residency(holdings, _read_per_token(file, graph))
    shared = (spec, n_ctx, cache.groups, weights, cache, states, slots, executor, residency, notes)
    return LoadedModel(*shared, owning=owning, placement=placement)


def _matrices(graph: Graph) -> dict[str, int]:
    """Every matrix of the graph with the length of its rows."""
    found: dict[str, int] = {}
    for op in graph.ops:
        if isinstance(op, Embed):
            found[op.weight] = op.out.width
        elif isinstance(op, Linear):
            found[op.weight] = op.x.width
        elif isinstance(op, Experts):
            found |= {op.gate: op.x.width, op.up: op.x.width, op.down: op.n_ff}
        elif isinstance(op, LatentAttention):
            found |= {one.weight: one.n_in for one in (op.mla.absorb, op.mla.k, op.mla.v) if not one.transposed}
    return found


def _shares(graph: Graph) -> dict[str, float]:
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


def _read_per_token(file: GgufFile, graph: Graph) -> int:
    """Bytes of weights that one decoded token reads: every linear layer, and of the experts those that are chosen."""
    always = {op.weight for op in graph.ops if isinstance(op, Linear)}
    chosen = [(op, name) for op in graph.ops if isinstance(op, Experts) for name in {op.gate, op.up, op.down}]
    heads = [part for op in graph.ops if isinstance(op, LatentAttention) for part in (op.mla.absorb, op.mla.v)]
    return (
        sum(file.tensors[name].nbytes for name in always)
        + sum(file.tensors[name].nbytes * op.chosen.width // op.n_experts for op, name in chosen)
        + sum(head_bytes(part, file.tensors[part.weight].type_id) for part in heads)
    )


def _smoke_test(model: LoadedModel) -> None:
    """One token through every layer."""
    one, none = np.zeros(1, np.int32), np.zeros(1, np.int32)
    logits = model.step(StepBatch("decode", one, none, none, (np.zeros(1, np.int32),), none))
    if not np.isfinite(logits).all():
        raise EngineError("the model's first token came out as no number; the file is probably damaged, get it again")
