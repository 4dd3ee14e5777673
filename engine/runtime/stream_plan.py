"""The plan of chunks of prompts whose experts are brought to GPUs, and what it asks of bus and CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.arch.units import UnitId
from engine.errors import OutOfMemory
from engine.graph.ops import Experts, Graph
from engine.placement.options import LoadOptions
from engine.placement.placement import Device, Gpu, Placement
from engine.placement.streaming import placement_for_prefill, streams
from engine.placement.tensors import tensor_uses
from engine.program.lane_ops import LaneExpertsDown, LaneExpertsUp
from engine.program.lower import lower
from engine.program.plan import Plan
from engine.quants.formats import BY_ID
from engine.runtime.gpu import GpuDevice
from engine.runtime.stream_choice import Load


def streamed_plan(
    graph: Graph,
    placement: Placement,
    plans: Sequence[Plan],
    types: Mapping[str, int],
    options: LoadOptions,
    gpus: Sequence[GpuDevice],
) -> Plan | None:
    """The plan, of the longest chunk; None where there is nothing to bring, or no gain in it."""
    rows = plans[-1].max_rows
    if not streams(options, rows, emulated=any(gpu.emulated for gpu in gpus)):
        return None
    beside = placement_for_prefill(placement, unreadable(graph, types))
    return None if beside is None else lower(graph, beside, "prefill", rows, types, f32=options.f32_activations)


def unreadable(graph: Graph, types: Mapping[str, int]) -> frozenset[UnitId]:
    """Units with matrices of formats that GPUs do not read."""
    matrices = (use for use in tensor_uses(graph) if use.use == "matrix")
    return frozenset(use.unit for use in matrices if BY_ID[types[use.name]].path != "fast")


def load_of(graph: Graph, plan: Plan, placement: Placement, stream_bytes: int, n_workers: int) -> Load:
    """What the experts that the plan brings ask of a bus, stream_bytes of the busiest, or of n_workers of the CPU."""
    brought: set[UnitId] = set()
    for lane in plan.lanes:
        here: Device = lane.device
        if isinstance(here, Gpu):
            ops = (op for op in lane.ops if isinstance(op, LaneExpertsUp | LaneExpertsDown))
            brought |= {op.unit for op in ops if placement.device_of(op.unit) != here}
    macs = sum(3 * op.x.width * op.n_ff * op.chosen.width for op in graph.ops if isinstance(op, Experts) and op.unit in brought)
    return Load(stream_bytes, 2.0 * macs, n_workers)


def without_room(error: OutOfMemory) -> str:
    """What is told where the ring has no room."""
    return f"Long prompts are computed with the experts on the CPU, for they cannot be brought to the GPU: {error}."
