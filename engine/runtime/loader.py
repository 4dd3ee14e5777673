"""A model file to a model that steps: maps, builds, proves itself on one token; undoes everything on failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from engine.arch.cache_groups import windows
from engine.arch.spec import ModelSpec
from engine.errors import DeviceLost, EngineError, OutOfDeviceMemory, OutOfMemory, PlacementError, UnsupportedModel
from engine.estimate.chunks import with_longer_chunk
from engine.estimate.tuned import load_tuned, tuned_key, with_tuned
from engine.gguf.info import GgufFile
from engine.graph.ops import Embed, Experts, Graph, LatentAttention, Linear
from engine.graph.reference import ReferenceModel
from engine.hardware.machine import this_machine
from engine.hardware.topology_read import topology
from engine.hardware.user_data import user_data_dir
from engine.placement.options import LoadOptions
from engine.placement.over_nodes import over_nodes
from engine.placement.placement import Gpu, Placement, default_placement, plan_workers
from engine.runtime.build import advised, build, estimator_of
from engine.runtime.cache_groups import BLOCK, plan_groups
from engine.runtime.choice import choose_placement
from engine.runtime.kv_cache import context_of
from engine.runtime.loaded_model import LoadedModel
from engine.runtime.node_memory import NodeMemory
from engine.runtime.placed import Placed
from engine.runtime.rope_table import RopeTables
from engine.runtime.source import Building, ModelSource, Progress
from engine.runtime.states import plan_slots
from engine.runtime.step import StepBatch
from engine.runtime.weights import Weights
from engine.runtime.workers import refusal
from kernels_pyx.executor import AbortFlag

__all__ = ["LoadedModel", "load"]


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
    machine = this_machine()  # as it was before anything was taken
    building = Building(progress, abort, abort)
    try:
        weights = Weights(file)
        building.undo.append(weights.close)
        types = {} if options.reference else _types(file, graph, weights)
        ropes = RopeTables(weights, -(-n_ctx // BLOCK) * BLOCK)
        nodes = NodeMemory.of(topology())
        source = ModelSource(file, spec, graph, options, n_ctx, weights, ropes, types, machine, nodes=nodes)
        if not options.reference:
            source, placed = _placed(source, building)
            model = LoadedModel(source, placed, abort)
        else:
            model = _reference(source, building.undo, abort)
        progress("warmup", 0, 1)
        _smoke_test(model)
        model.forget_counts()
        progress("warmup", 1, 1)
    except BaseException:
        building.give_back()
        raise
    return model


def _reference(source: ModelSource, undo: list[Callable[[], None]], abort: AbortFlag) -> LoadedModel:
    spec = source.spec
    reference = ReferenceModel(source.file, spec, source.graph, block=BLOCK, stop=lambda: abort.is_set)
    undo.append(reference.close)
    slots = plan_slots(spec, source.snapshot_budget)
    groups = plan_groups(spec, source.n_ctx, source.chunk, (0,) * len(windows(spec)))
    return LoadedModel(source, reference, abort, groups, slots)


def _placed(source: ModelSource, building: Building) -> tuple[ModelSource, Placed]:
    """As asked for, else over the GPUs that are there, else on the CPU; with the chunk that was chosen for it."""
    placement, notes = choose_placement(source.file, source.spec, source.graph, source.options)
    source, placement = _as_tuned(source, placement)
    chosen = with_longer_chunk(source.options, placement, partial(estimator_of, source))
    source = replace(source, options=chosen)
    before = len(building.undo)
    try:
        placed = _built(source, placement, building)
    except (DeviceLost, OutOfMemory, PlacementError, UnsupportedModel) as error:
        if source.options.placement or not any(isinstance(device, Gpu) for device in placement.devices):
            raise
        # Nobody asked for GPUs: the model runs all the same.
        while len(building.undo) > before:
            building.undo.pop()()
        notes = (*notes, f"No GPU is used: {error}.")
        placed = build(source, over_nodes(default_placement(source.spec, source.options), source.machine), building)
    return source, replace(placed, notes=(*notes, *placed.notes, *_not_pinned(placed)))


def _as_tuned(source: ModelSource, placement: Placement) -> tuple[ModelSource, Placement]:
    """With the workers and the chunk that were found to be fastest here, where nobody asked for others."""
    gpus = any(isinstance(device, Gpu) for device in placement.devices)
    found = load_tuned(user_data_dir(), source.machine, tuned_key(source.spec, source.file.file_bytes, gpus=gpus))
    options = with_tuned(source.options, found)
    if options == source.options:
        return source, placement
    workers = plan_workers(options.n_threads, options.cores)
    return replace(source, options=options, tuned=found), replace(placement, workers=workers)


def _not_pinned(placed: Placed) -> tuple[str, ...]:
    team = None if placed.programs is None else placed.programs.team
    why = "" if team is None else refusal(team)
    return (f"Some workers run where the system likes: {why}.",) if why else ()


def _built(source: ModelSource, placement: Placement, building: Building) -> Placed:
    try:
        return build(source, placement, building)
    except OutOfDeviceMemory as error:
        raise advised(error, source, placement) from error


def _types(file: GgufFile, graph: Graph, weights: Weights) -> dict[str, int]:
    """The ggml type id of every matrix of the graph, known to have kernels."""
    names = _matrices(graph)
    for name, n_in in names.items():
        weights.matrix(name, n_in)
    return {name: file.tensors[name].type_id for name in names}


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


def _smoke_test(model: LoadedModel) -> None:
    """One token through every layer."""
    one, none = np.zeros(1, np.int32), np.zeros(1, np.int32)
    logits = model.step(StepBatch("decode", one, none, none, (np.zeros(1, np.int32),), none))
    if not np.isfinite(logits).all():
        raise EngineError("the model's first token came out as no number; the file is probably damaged, get it again")
