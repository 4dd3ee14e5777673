"""The default placement and the team of workers."""

from __future__ import annotations

import copy
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from engine.arch.registry import build_spec
from engine.arch.units import UnitId
from engine.errors import InvalidRequest, PlacementError
from engine.gguf.reader import read_gguf
from engine.placement.file import from_json, to_json
from engine.placement.options import LoadOptions
from engine.placement.placement import Gpu, Numa, default_placement, plan_workers, units_of
from tests.helpers.golden_models import golden
from tests.helpers.runs import write_model


def test_experts_can_be_placed_by_themselves() -> None:
    units = units_of(build_spec(read_gguf(golden("qwen3moe").path)))
    assert UnitId("experts", 2) in units
    assert len(set(units)) == 2 + 3 * 4


def test_of_a_device_there_is_one_object() -> None:
    for one in (Gpu(1), Numa(1)):
        assert copy.deepcopy(one) is one and copy.copy(one) is one and pickle.loads(pickle.dumps(one)) is one
    assert Gpu(1) is Gpu(index=1) and Numa(1) is Numa(node=1)
    assert len({Gpu(0), Gpu(1), Gpu(1), Numa(0), Numa(1)}) == 4
    assert sorted([Gpu(1), Numa(1), Gpu(0), Numa(0)]) == [Numa(0), Numa(1), Gpu(0), Gpu(1)]
    assert replace(Gpu(1), index=2) is Gpu(2) and Gpu(1).index == 1


def test_default_placement_covers_every_unit_once(tmp_path: Path) -> None:
    spec = build_spec(read_gguf(write_model(tmp_path / "m.gguf", n_layers=3)))
    placement = default_placement(spec, LoadOptions(n_threads=2, k_type="f32"))
    assert len(units_of(spec)) == len(set(units_of(spec))) == 2 + 3 * 3
    assert all(placement.device_of(unit) == Numa(0) for unit in units_of(spec))
    assert placement.devices == (Numa(0),)
    assert (placement.k_type, placement.v_type, placement.workers.n_workers) == ("f32", "f16", 2)
    with pytest.raises(PlacementError, match=r"mixer\.7"):
        placement.device_of(UnitId("mixer", 7))


def test_workers_are_pinned_when_each_has_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5, 2, 9})
    assert plan_workers(0).cores == (2, 5, 9)
    assert plan_workers(2).cores == (2, 5)
    assert plan_workers(4).cores == (-1, -1, -1, -1)
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    assert plan_workers(0).cores == (-1, -1, -1)


def test_workers_run_on_the_processors_that_were_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5, 2, 9})
    assert plan_workers(2, (9, 2)).cores == (2, 9)
    with pytest.raises(InvalidRequest, match="may use 2,5,9"):
        plan_workers(2, (2, 3))


@pytest.mark.parametrize("n", [-1, 257])
def test_absurd_teams_are_refused(n: int) -> None:
    with pytest.raises(InvalidRequest, match=str(n)):
        plan_workers(n)


def test_units_lie_on_nodes_of_memory_that_are_there() -> None:
    spec = build_spec(read_gguf(golden("qwen3").path))
    usual = default_placement(spec, LoadOptions())
    units = tuple((unit, Numa(1) if unit.layer == 1 else where) for unit, where in usual.units)
    text = to_json(replace(usual, units=units), spec)
    assert from_json(text, spec, (), LoadOptions(), "it", nodes=(0, 1)).units == units
    with pytest.raises(PlacementError, match=r"it: mixer.1 is on numa1, which is not there; this machine has numa0"):
        from_json(text, spec, (), LoadOptions(), "it")
