"""Pools of experts in plans: what a GPU and the CPU do of a layer, and in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.arch.units import UnitId
from engine.errors import PlacementError
from engine.graph.ops import Graph
from engine.placement.options import LoadOptions
from engine.placement.placement import Gpu, Numa, Placement, Pool, default_placement
from engine.program.fuse import Phase
from engine.program.lane_ops import LaneAdd, LaneExpertsDown, LaneExpertsUp, LaneRoute
from engine.program.lane_transfer import LaneChosen, LaneRecv, LaneSend
from engine.program.lower import lower
from engine.program.plan import Lane
from tests.helpers.described import Described, model

OPTIONS = LoadOptions(n_threads=1)
CARD = Gpu(0)


def hybrid(one: Described, *pools: Pool) -> Placement:
    units = default_placement(one.spec, OPTIONS).units
    return replace(
        default_placement(one.spec, OPTIONS),
        units=tuple((unit, Numa(0) if unit.kind == "experts" else CARD) for unit, _ in units),
        pools=pools,
    )


def lanes(one: Described, placement: Placement, phase: Phase = "decode") -> tuple[Lane, Lane]:
    """(the GPU's, the CPU's)."""
    types = {name: tensor.type_id for name, tensor in one.file.tensors.items()}
    graph: Graph = one.graph
    plan = lower(graph, placement, phase, 1 if phase == "decode" else 64, types)
    gpu, cpu = plan.lane_of(CARD), plan.lane_of(Numa(0))
    assert gpu is not None and cpu is not None
    return gpu, cpu


@pytest.mark.parametrize("phase", ["decode", "prefill"])
@pytest.mark.parametrize(("name", "more"), [("qwen3moe", 3), ("qwen35moe", 2), ("deepseek2-v3", 3)])
def test_a_pool_adds_three_launches_at_most_and_no_exchange(name: str, more: int, phase: Phase) -> None:
    """Up, the input of down, and down, which adds to the stream and takes a shared expert along: one launch less where that is
    gated."""
    one = model(name)
    layer = one.spec.n_layers - 2
    plain, pooled = lanes(one, hybrid(one), phase), lanes(one, hybrid(one, Pool(layer, CARD, (1, 5))), phase)
    kinds = [[type(op).__name__ for op in lane.ops] for lane in (*plain, *pooled)]
    assert kinds[1] == kinds[3]
    shared = UnitId("shared", layer) in [unit for unit, _ in hybrid(one).units]
    assert len(kinds[2]) - len(kinds[0]) == more
    downs = [op for op in pooled[0].ops if isinstance(op, LaneExpertsDown)]
    assert len(downs) == 1 and downs[0].pooled and downs[0].add and downs[0].choice.n_experts == 2
    assert (downs[0].beside is not None) == shared


def test_the_cpu_is_told_before_the_pool_computes_and_added_behind_it() -> None:
    one = model("qwen3moe")
    gpu, cpu = lanes(one, hybrid(one, Pool(1, CARD, (0, 3, 4))))
    at = {type(op): i for i, op in enumerate(gpu.ops) if op.unit.layer == 1 and not isinstance(op, LaneSend)}
    send = next(i for i, op in enumerate(gpu.ops) if isinstance(op, LaneSend) and op.unit == UnitId("ffn", 1))
    route = gpu.ops[at[LaneRoute]]
    assert isinstance(route, LaneRoute) and route.pool is not None
    sent = gpu.ops[send]
    assert isinstance(sent, LaneSend)
    assert route.pool.there in sent.buffers and route.pool.here not in sent.buffers and route.pool.chosen not in sent.buffers
    assert at[LaneRoute] < send < at[LaneExpertsUp] < at[LaneExpertsDown] < at[LaneRecv] < at[LaneAdd]
    known = [op for op in cpu.ops if isinstance(op, LaneChosen | LaneExpertsUp) and op.unit.layer == 1]
    assert len(known) == 2 and all(op.choice.n_experts == one.spec.blocks[1].ffn.n_experts for op in known)  # type: ignore[union-attr]


def test_a_router_elsewhere_is_refused() -> None:
    one = model("qwen3moe")
    with pytest.raises(PlacementError, match=r"on gpu1 and ffn\.1, its router, on gpu0"):
        lanes(one, hybrid(one, Pool(1, Gpu(1), (0,))))


def test_experts_that_lie_on_a_gpu_as_a_whole_leave_their_pool_alone() -> None:
    one = model("qwen3moe")
    placement = hybrid(one, Pool(1, CARD, (0,)))
    whole = replace(
        placement, units=tuple((unit, CARD if unit == UnitId("experts", 1) else where) for unit, where in placement.units)
    )
    gpu, _ = lanes(one, whole)
    found = [op for op in gpu.ops if isinstance(op, LaneExpertsUp)]
    assert [op.pooled for op in found] == [False]
