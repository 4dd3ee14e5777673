"""Pools of experts in placements: their file, and which are refused and why."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.api.heat import with_hottest
from engine.arch.registry import build_spec
from engine.arch.spec import ModelSpec
from engine.arch.units import UnitId
from engine.errors import PlacementError
from engine.gguf.reader import read_gguf
from engine.hardware.gpus import GpuInfo
from engine.placement.file import from_json, to_json
from engine.placement.options import LoadOptions
from engine.placement.placement import Gpu, Numa, Placement, Pool, default_placement
from engine.placement.pools import with_pool, with_sensible_pools
from tests.helpers.golden_models import golden

GPUS = [GpuInfo(0, "one", 1 << 30, 1 << 30, emulated=True), GpuInfo(1, "two", 1 << 30, 1 << 30, emulated=True)]
OPTIONS = LoadOptions(n_threads=1)


@pytest.fixture(scope="module")
def spec() -> ModelSpec:
    return build_spec(read_gguf(golden("qwen3moe").path))


@pytest.fixture
def hybrid(spec: ModelSpec) -> Placement:
    usual = default_placement(spec, OPTIONS)
    return replace(usual, units=tuple((unit, Numa(0) if unit.kind == "experts" else Gpu(0)) for unit, _ in usual.units))


def read(placement: Placement, spec: ModelSpec) -> Placement:
    return from_json(to_json(placement, spec), spec, GPUS, OPTIONS, "it")


def test_a_file_gives_the_pools_that_were_written(spec: ModelSpec, hybrid: Placement) -> None:
    pooled = replace(hybrid, pools=(Pool(0, Gpu(0), (5, 1)), Pool(2, Gpu(0), (0,))))
    assert read(pooled, spec) == pooled
    assert json.loads(to_json(pooled, spec))["pools"] == {"experts.0": {"gpu0": [5, 1]}, "experts.2": {"gpu0": [0]}}
    assert "pools" not in json.loads(to_json(hybrid, spec))
    assert (pooled.pool_of(0), pooled.pool_of(1)) == (pooled.pools[0], None)


@pytest.mark.parametrize(
    ("pools", "why"),
    [
        ((Pool(9, Gpu(0), (1,)),), "layer 9 has no experts"),
        ((Pool(1, Gpu(0), ()),), r"must name some of the experts 0 to \d+, each once"),
        ((Pool(1, Gpu(0), (3, 3)),), "each once"),
        ((Pool(1, Gpu(0), (10_000,)),), "must name some of the experts"),
        ((Pool(1, Gpu(1), (1,)),), r"on gpu1 and ffn\.1, its router, on gpu0"),
    ],
)
def test_pools_without_sense_are_refused(spec: ModelSpec, hybrid: Placement, pools: tuple[Pool, ...], why: str) -> None:
    with pytest.raises(PlacementError, match=why):
        read(replace(hybrid, pools=pools), spec)


def test_experts_that_lie_on_a_gpu_as_a_whole_have_no_pool(spec: ModelSpec, hybrid: Placement) -> None:
    moved = tuple((unit, Gpu(0) if unit == UnitId("experts", 1) else where) for unit, where in hybrid.units)
    both = replace(hybrid, units=moved, pools=(Pool(1, Gpu(0), (1,)), Pool(2, Gpu(0), (1,))))
    with pytest.raises(PlacementError, match=r"experts\.1 is on gpu0 as a whole"):
        read(both, spec)
    assert both.pool_of(1) is None
    assert with_sensible_pools(both).pools == (both.pools[1],)


@pytest.mark.parametrize(
    "value", [[], {"experts.1": 3}, {"ffn.1": {"gpu0": [1]}}, {"experts.1": {"numa0": [1]}}, {"experts.1": {"gpu0": [True]}}]
)
def test_files_with_something_else_are_refused(spec: ModelSpec, hybrid: Placement, value: Any) -> None:
    text = json.dumps(json.loads(to_json(hybrid, spec)) | {"pools": value})
    with pytest.raises(PlacementError, match=r"^it: "):
        from_json(text, spec, GPUS, OPTIONS, "it")


def test_a_pool_is_put_where_the_router_is(spec: ModelSpec, hybrid: Placement) -> None:
    one = with_pool(hybrid, 1, (4, 2))
    assert one.pools == (Pool(1, Gpu(0), (4, 2)),)
    assert with_pool(with_pool(one, 0, (3,)), 1, (5,)).pools == (Pool(0, Gpu(0), (3,)), Pool(1, Gpu(0), (5,)))
    assert with_pool(one, 1, ()) == hybrid
    with pytest.raises(PlacementError, match="no experts to pool"):
        with_pool(hybrid, 9, (1,))
    with pytest.raises(PlacementError, match=r"ffn\.1 is on numa0"):
        with_pool(default_placement(spec, OPTIONS), 1, (1,))


def test_the_hottest_go_where_they_can(spec: ModelSpec, hybrid: Placement) -> None:
    units = tuple((unit, Gpu(0) if unit == UnitId("experts", 1) else where) for unit, where in hybrid.units)
    counts = np.array([[0, 9, 1, 8], [1, 2, 3, 4], [7, 0, 0, 6]], np.uint64)
    found = with_hottest(replace(hybrid, units=units), (0, 1, 2), counts, 2)
    assert found.pools == (Pool(0, Gpu(0), (1, 3)), Pool(2, Gpu(0), (0, 3)))
    assert with_hottest(found, (0, 1, 2), counts, 0).pools == ()
