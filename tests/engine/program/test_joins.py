"""What ops of a GPU that may be one launch touch lies apart: no program of a launch overwrites what another still reads."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from engine.placement.options import LoadOptions
from engine.placement.placement import Device, Gpu, Numa, default_placement
from engine.program.joins import joins, together
from engine.program.lane_ops import LaneAttend, LanePosition, LanePrepare, LaneRoute, reads, writes
from engine.program.lower import lower
from engine.program.plan import Lane, Plan
from tests.helpers.described import model
from tests.helpers.golden_models import MODELS


def plan_of(name: str, rows: int, experts: Device) -> Plan:
    """Decode of a golden model on a GPU, its routed experts elsewhere or not."""
    one = model(name)
    usual = default_placement(one.spec, LoadOptions(n_threads=2))
    units = tuple((unit, experts if unit.kind == "experts" else Gpu(0)) for unit, _ in usual.units)
    types = {tensor.name: tensor.type_id for tensor in one.file.tensors.values()}
    return lower(one.graph, replace(usual, units=units), "decode", rows, types, f32=False)


def overlapping(lane: Lane, first: int, n: int) -> list[tuple[str, str]]:
    """Pairs of buffers of some ops that share bytes."""
    ops = lane.ops[first : first + n]
    read = {buffer.name for op in ops for buffer in reads(op) if buffer.name in lane.slots}
    written = {buffer.name for op in ops for buffer in writes(op) if buffer.name in lane.slots}
    pairs = ((lane.slots[a], lane.slots[b]) for a, b in product(read | written, written) if a != b)
    return [(a.name, b.name) for a, b in pairs if a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes]


@pytest.mark.parametrize("experts", [Gpu(0), Numa(0)], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_what_may_be_one_launch_touches_lies_apart(name: str, experts: Device) -> None:
    for rows in (1, 8):
        plan = plan_of(name, rows, experts)
        lane = next(one for one in plan.lanes if one.device == Gpu(0))
        for first, n in joins(lane.ops).items():
            assert not overlapping(lane, first, n)


def test_attention_stands_with_what_is_behind_it_and_a_router_with_its_rows() -> None:
    plan = plan_of("qwen3moe", 1, Gpu(0))
    lane = next(one for one in plan.lanes if one.device == Gpu(0))
    kinds = {tuple(type(op) for op in lane.ops[first : first + n]) for first, n in joins(lane.ops).items()}
    assert (LanePrepare, LaneRoute) in kinds
    assert kinds - {(LanePrepare, LaneRoute)} <= {(LanePosition, LaneAttend), (LanePosition, LaneAttend, LanePrepare)}
    n_layers = model("qwen3moe").spec.n_layers
    assert len(joins(lane.ops)) == 2 * n_layers
    assert together(lane.ops[:1]) == 1
