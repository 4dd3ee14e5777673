"""Spreads of a placement: what files say of them, which of them count, and what is spread on a machine with several nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.arch.registry import build_spec
from engine.arch.spec import ModelSpec
from engine.arch.units import UnitId
from engine.errors import PlacementError
from engine.gguf.reader import read_gguf
from engine.hardware.machine import Machine, NodeInfo
from engine.placement.file import from_json, to_json
from engine.placement.options import LoadOptions
from engine.placement.over_nodes import over_nodes, shares_of, spreads_from_json, spreads_to_json, with_spread
from engine.placement.placement import Gpu, Numa, Placement, default_placement, units_of
from engine.placement.spread import Interleave, Split, even
from tests.helpers.golden_models import golden

EXPERTS = UnitId("experts", 1)


def _machine(*rates: float | None, cores: tuple[int, ...] = (8, 8)) -> Machine:
    nodes = tuple(NodeInfo(i, "", 1 << 30, 1 << 30, cores[i], rate) for i, rate in enumerate(rates))
    return Machine(2 << 30, 2 << 30, (), nodes=nodes)


@pytest.fixture(scope="module")
def spec() -> ModelSpec:
    return build_spec(read_gguf(golden("qwen2moe").path))


@pytest.fixture(scope="module")
def usual(spec: ModelSpec) -> Placement:
    return default_placement(spec, LoadOptions())


def test_what_has_no_wish_is_spread_as_nodes_read(usual: Placement) -> None:
    found = over_nodes(usual, _machine(300.0, 100.0))
    assert found.spread_of(EXPERTS) == Split(((0, 300.0), (1, 100.0))) and found.nodes == (0, 1)
    assert found.spread_of(UnitId("kv", 0)) == Interleave((0, 1)) == found.spread_of(UnitId("embed"))
    assert all(device == Numa(0) for _, device in found.units) and found.devices == (Numa(0), Numa(1))
    assert shares_of(_machine(300.0, None, cores=(8, 4))) == Split(((0, 8.0), (1, 4.0)))
    assert shares_of(_machine(300.0, 300.0), {0: 90.0, 1: 30.0}) == Split(((0, 90.0), (1, 30.0)))  # what was measured counts
    assert over_nodes(usual, _machine(300.0)) == usual and over_nodes(found, _machine(1.0, 1.0)) == found
    chosen = replace(usual, units=tuple((unit, Numa(unit.layer == 1)) for unit, _ in usual.units))
    assert over_nodes(chosen, _machine(1.0, 1.0)) == chosen


def test_memory_without_cores_takes_no_part() -> None:
    nodes = tuple(NodeInfo(i, "", 1, 1, max(1, len(cpus)), cpus=cpus) for i, cpus in enumerate(((0, 1), (), (2, 3))))
    assert shares_of(Machine(3, 3, (), nodes=nodes)) == Split(((0, 2.0), (2, 2.0)))


def _bare(*nodes: tuple[int, tuple[int, ...]]) -> Machine:
    return Machine(9, 9, (), nodes=tuple(NodeInfo(i, "", 1, 1, max(1, len(cpus)), cpus=cpus) for i, cpus in nodes))


def test_who_says_nothing_gets_nodes_with_memory_and_cores(usual: Placement) -> None:
    first_bare = over_nodes(usual, _bare((0, ()), (1, (0, 1, 2, 3))))
    assert first_bare.nodes == (1,) and not first_bare.spreads
    first_empty = over_nodes(usual, _bare((1, (0, 1)), (2, (2, 3))))
    assert first_empty.nodes == (1, 2) and first_empty.spread_of(EXPERTS) == Split(((1, 2.0), (2, 2.0)))
    assert over_nodes(first_empty, _bare((1, (0, 1)), (2, (2, 3)))) == first_empty
    assert over_nodes(usual, _bare((0, (0, 1)), (2, ()))) == usual
    mixed = replace(usual, units=tuple((unit, Gpu(0) if unit.layer == 1 else one) for unit, one in usual.units))
    assert set(over_nodes(mixed, _bare((0, ()), (1, (0, 1)))).devices) == {Numa(1), Gpu(0)}
    asked = replace(usual, units=tuple((unit, Numa(unit.layer == 1)) for unit, _ in usual.units))
    assert over_nodes(asked, _bare((0, ()), (1, (0, 1)))) == asked


def test_a_unit_that_was_moved_is_not_spread_any_more(usual: Placement) -> None:
    found = over_nodes(usual, _machine(1.0, 1.0))
    for device in (Numa(1), Gpu(0)):
        moved = replace(found, units=tuple((unit, device if unit == EXPERTS else one) for unit, one in found.units))
        assert moved.spread_of(EXPERTS) is None and moved.spread_of(UnitId("experts", 0)) is not None
        assert moved.dealt(EXPERTS, 10) == {device: 10}
        assert str(EXPERTS) not in spreads_to_json(moved)
    assert found.dealt(EXPERTS, 11) == {Numa(0): 6, Numa(1): 5} and found.nodes_of(EXPERTS) == (0, 1)


def test_caches_go_with_attention(usual: Placement) -> None:
    mixer, kv = UnitId("mixer", 0), UnitId("kv", 0)
    found = with_spread(usual, [mixer], Split(((1, 1.0), (2, 1.0))))
    assert found.spread_of(kv) == Interleave((1, 2)) and found.device_of(kv) == found.device_of(mixer) == Numa(1)
    assert with_spread(found, [mixer], None).spreads == ()
    assert found.joined.devices == (Numa(0),)


def test_files_keep_spreads(spec: ModelSpec, usual: Placement) -> None:
    found = with_spread(over_nodes(usual, _machine(2.0, 1.0)), [EXPERTS], even((0, 1)))
    again = from_json(to_json(found, spec), spec, (), LoadOptions(), "it", nodes=(0, 1))
    assert all(again.spread_of(unit) == found.spread_of(unit) for unit in units_of(spec))
    assert "spreads" not in to_json(usual, spec)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([], "no object"),
        ({"experts.99": {"split": {"numa0": 1, "numa1": 1}}}, "no unit 'experts.99'"),
        ({"experts.1": {"split": {"numa0": 1}}}, "neither a split nor"),
        ({"experts.1": {"split": {"numa0": 1, "numa1": 1}, "interleave": []}}, "neither a split nor"),
        ({"experts.1": {"interleave": ["numa0", "numa0"]}}, "neither a split nor"),
        ({"experts.1": {"split": {"numa0": 1, "numa3": 1}}}, "'numa3'; this machine has numa0, numa1"),
        ({"experts.1": {"split": {"numa0": 1, "gpu0": 1}}}, "'gpu0'"),
        ({"experts.1": {"split": {"numa0": 1, "numa1": 0}}}, "above 0"),
        ({"experts.1": {"split": {"numa0": 1, "numa1": True}}}, "above 0"),
        ({"experts.1": {"split": {"numa0": 1, "numa1": float("nan")}}}, "above 0"),
        ({"experts.1": 5}, "neither a split nor"),
    ],
)
def test_files_with_impossible_spreads_are_refused(spec: ModelSpec, value: object, why: str) -> None:
    with pytest.raises(PlacementError, match=why):
        spreads_from_json(value, units_of(spec), (0, 1), "it")
