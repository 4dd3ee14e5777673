"""Ops in parts for the nodes that their weights are split over: nothing is lost, and parts run side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.arch.registry import build_spec
from engine.arch.units import UnitId
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.placement.options import LoadOptions
from engine.placement.placement import Numa, Placement, default_placement
from engine.placement.spread import GRAIN, Interleave, Split, cuts, even, expert_cuts, row_cuts
from engine.program.fuse import Phase
from engine.program.lane_ops import LaneAdd, LaneExpertsDown, LaneExpertsUp, LaneLinear, LanePrepare, LaneSpread, writes
from engine.program.lower import lower
from engine.program.plan import Lane
from tests.helpers.golden_models import golden
from tests.helpers.runs import mixture, same, write_model

SHARES = st.lists(st.floats(0.01, 100), min_size=2, max_size=8).map(lambda one: Split(tuple(enumerate(one))))


@given(st.integers(1, 40), SHARES, st.sampled_from((16, 32, 64, 256)))
def test_cuts_are_all_of_it_at_whole_grains(n: int, split: Split, grain: int) -> None:
    found = cuts(n * grain, split, grain)
    assert found[0][0] == 0 and found[-1][1] == n * grain and len(found) == len(split.shares)
    assert all(before[1] == after[0] for before, after in pairwise(found))
    assert all(first % grain == 0 and end % grain == 0 and first <= end for first, end in found)
    for (first, end), part in zip(found, split.parts, strict=True):
        assert abs((end - first) - part * n * grain) <= grain


@given(st.integers(1, 5000), SHARES)
def test_rows_of_any_matrix_can_be_dealt_out(n_rows: int, split: Split) -> None:
    found = row_cuts(n_rows, split)
    assert sum(end - first for first, end in found) == n_rows
    assert all(first % 16 == 0 for first, end in found if first < end)


def test_experts_are_cut_at_whole_blocks_of_every_format() -> None:
    assert expert_cuts(768, even((0, 1))) == ((0, 512), (512, 768)) and GRAIN == 256
    assert expert_cuts(2048, Split(((0, 3.0), (1, 1.0)))) == ((0, 1536), (1536, 2048))
    assert expert_cuts(96, even((0, 1))) == ((0, 64), (64, 96))  # no format with blocks of 256 has such rows
    assert expert_cuts(1408, even((0, 1))) == ((0, 704), (704, 1408))
    assert expert_cuts(20, even((0, 1))) is None


def _placement(path: Path, change: object = same) -> Placement:
    spec = change(build_spec(read_gguf(path)))  # type: ignore[operator]
    base = default_placement(spec, LoadOptions())
    split, turns = even((0, 1)), Interleave((0, 1))
    kinds = ("mixer", "ffn", "shared", "experts", "head")
    return replace(base, spreads=tuple((unit, split if unit.kind in kinds else turns) for unit, _ in base.units))


def _lane(path: Path, phase: Phase, rows: int, change: object = same) -> Lane:
    file = read_gguf(path)
    spec = change(build_spec(file))  # type: ignore[operator]
    types = {name: tensor.type_id for name, tensor in file.tensors.items()}
    return lower(build_graph(spec), _placement(path, change), phase, rows, types).lanes[0]


@pytest.fixture(scope="module")
def moe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("m") / "m.gguf", quant="Q8_0", n_embd=64, n_ff=96, n_experts=8)


@pytest.mark.parametrize(("phase", "rows"), [("decode", 1), ("decode", 8), ("prefill", 64)])
def test_a_node_goes_from_up_to_down_without_the_others(moe: Path, phase: Phase, rows: int) -> None:
    lane = _lane(moe, phase, rows, mixture(8, 3))
    for unit in (UnitId("experts", 1),):
        ops = [(i, op) for i, op in enumerate(lane.ops) if op.unit == unit]
        ups = [(i, op) for i, op in ops if isinstance(op, LaneExpertsUp)]
        downs = [(i, op) for i, op in ops if isinstance(op, LaneExpertsDown)]
        assert [op.part.node for _, op in ups if op.part] == [0, 1] == [op.part.node for _, op in downs if op.part]
        assert [op.part.ranges for _, op in downs if op.part] == [((0, 64),), ((64, 96),)]
        assert not any(lane.meets[i] for i in range(ups[0][0], downs[-1][0]))
        assert all(lane.team_meets[i] for i, _ in ups)
        (add,) = [op for _, op in ops if isinstance(op, LaneAdd)]
        assert [add.y, add.more] == [op.out for _, op in downs] and add.x not in (add.y, add.more) and lane.meets[downs[-1][0]]
        prepared = [i for i, op in ops if isinstance(op, LanePrepare) and op.part is not None]
        assert len(prepared) == (2 if phase == "prefill" else 0) and all(lane.team_meets[i] for i in prepared)


def test_parts_make_each_value_once(moe: Path) -> None:
    whole = _lane(moe, "decode", 1, mixture(8, 3))
    made: Counter[tuple[str, int]] = Counter()
    for op in whole.ops:
        if isinstance(op, LaneLinear) and op.epilogue == "store":
            spans = op.part.ranges if op.part else tuple((0, one.out.width) for one in op.weights)
            for one, (first, end) in zip(op.weights, spans, strict=True):
                made.update((one.out.name, i) for i in range(first, end))
    assert made and set(made.values()) == {1}
    stores = [op for op in whole.ops if isinstance(op, LaneLinear) and op.epilogue == "store"]
    widths = {one.out.name: one.out.width for op in stores for one in op.weights}
    assert len(made) == sum(widths.values())


def test_what_runs_side_by_side_has_places_of_its_own(moe: Path) -> None:
    lane = _lane(moe, "prefill", 64, mixture(8, 3))
    beside: list[str] = []
    for i, op in enumerate(lane.ops):
        beside += [one.name for one in writes(op) if one != lane.logits]
        if lane.meets[i]:
            slots = sorted((lane.slots[name].offset, lane.slots[name].nbytes) for name in set(beside))
            assert all(at + n <= after for (at, n), (after, _) in pairwise(slots))
            beside = []


def test_units_on_one_node_have_no_parts() -> None:
    file = read_gguf(golden("qwen3moe").path)
    spec = build_spec(file)
    base = default_placement(spec, LoadOptions())
    apart = replace(base, units=tuple((unit, Numa(unit.layer % 2 if unit.layer >= 0 else 0)) for unit, _ in base.units))
    types = {name: tensor.type_id for name, tensor in file.tensors.items()}
    (lane,) = lower(build_graph(spec), apart, "decode", 1, types).lanes
    assert lane.device == Numa(0) and lane.team_meets == ()
    assert not any(op.part for op in lane.ops if isinstance(op, LaneSpread))
    assert lane.ops == lower(build_graph(spec), base, "decode", 1, types).lanes[0].ops


def test_explain_names_nodes_and_ranges(moe: Path) -> None:
    file = read_gguf(moe)
    spec = mixture(8, 3)(build_spec(file))
    types = {name: tensor.type_id for name, tensor in file.tensors.items()}
    text = lower(build_graph(spec), _placement(moe, mixture(8, 3)), "decode", 1, types).explain()
    assert "(node 1, 64:96)" in text and "(node 0, 0:64, 0:64)" in text
