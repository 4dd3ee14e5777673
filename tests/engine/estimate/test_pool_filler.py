"""Pools of experts that `fit` makes: of the hottest where counts tell them apart, and whole layers where these serve as well."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.api.pure import Gpu, Numa, Placement, Planner, UnitId
from engine.api.values import LoadOptions
from engine.estimate.heat import Heat
from engine.estimate.pool_filler import LEAST_SHARE
from engine.placement.placement import Pool
from tests.engine.estimate.test_report_machines import GENOA, MILAN, machine, outline
from tests.helpers.report_models import Kind

N_EXPERTS = {"qwen3.5-122b": 256, "qwen3-235b": 128, "deepseek-r1": 256}


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("headers")


def planner(kind: Kind, headers: Path, folder: Path, cards: int) -> Planner:
    there = machine(folder, GENOA, "RTX 5090", 32) if cards == 1 else machine(folder, MILAN | {"ram_gib": 512}, "RTX 4090", 24, 4)
    return Planner(outline(kind, "Q4_K_M", headers), LoadOptions(n_ctx=16384), there)


def skewed(kind: Kind) -> dict[int, list[int]]:
    """Counts of every layer that fall with the rank, of experts in any order."""
    rng, found = random.Random(3), {}
    for layer in range(94):
        row = [int(1e5 / (rank + 1) ** 0.9) for rank in range(N_EXPERTS[kind])]
        rng.shuffle(row)
        found[layer] = row
    return found


def whole(placement: Placement) -> set[UnitId]:
    """The experts that lie on GPUs as a whole."""
    return {unit for unit, where in placement.units if unit.kind == "experts" and isinstance(where, Gpu)}


def test_heat_is_what_was_counted_and_else_even() -> None:
    heat = Heat({3: [1, 0, 6, 3], 4: [0, 0, 0, 0]})
    assert heat.known and not Heat({4: [0, 0]}).known
    assert heat.hits(Pool(3, Gpu(0), (2, 3)), 4) == pytest.approx(0.9)
    assert heat.hits(Pool(4, Gpu(0), (2, 3)), 4) == heat.hits(Pool(9, Gpu(0), (0,)), 2) == 0.5
    assert [expert for expert, _ in heat.ranked(3, 4)] == [2, 3, 0, 1]
    assert heat.ranked(4, 4) == tuple((i, 0.25) for i in range(4))
    assert heat.ranked(3, 8) == tuple((i, 0.125) for i in range(8))  # counts of another model


def test_hot_experts_take_the_room_of_whole_layers_where_that_is_clearly_faster(tmp_path: Path, headers: Path) -> None:
    here, counts = planner("qwen3.5-122b", headers, tmp_path, 1), skewed("qwen3.5-122b")
    without = here.estimate(here.fit())
    here.set_counts(counts)
    started = time.process_time()
    found = here.fit()
    assert time.process_time() - started < 1.0
    refined = here.refine(found)
    assert refined.fits and found.pools
    assert refined.decode_tok_s > 1.3 * without.decode_tok_s
    for pool in found.pools:
        row, n = counts[pool.layer], len(pool.experts)
        assert isinstance(found.device_of(UnitId("experts", pool.layer)), Numa)
        assert found.device_of(UnitId("ffn", pool.layer)) == pool.gpu
        assert n >= LEAST_SHARE * len(row)
        assert sorted((row[one] for one in pool.experts), reverse=True) == sorted(row, reverse=True)[:n]


@pytest.mark.parametrize("counted", (False, True))
def test_layers_that_fit_whole_stay_whole(tmp_path: Path, headers: Path, counted: bool) -> None:
    """Four cards hold all of it."""
    here = planner("qwen3.5-122b", headers, tmp_path, 4)
    if counted:
        here.set_counts(skewed("qwen3.5-122b"))
    found = here.fit()
    assert len(whole(found)) == 48 and not found.pools


def test_experts_that_are_all_as_hot_take_no_layer_away(tmp_path: Path, headers: Path) -> None:
    here = planner("qwen3-235b", headers, tmp_path, 4)
    before = here.fit()
    here.set_counts({layer: [5] * 128 for layer in range(94)})
    assert whole(here.fit()) == whole(before)


@pytest.mark.parametrize("cards", (1, 4))
@pytest.mark.parametrize("counted", (False, True))
def test_room_that_no_layer_fills_is_filled_with_pools(tmp_path: Path, headers: Path, cards: int, counted: bool) -> None:
    """Of the largest model, a layer of which takes 7 GB."""
    here = planner("deepseek-r1", headers, tmp_path, cards)
    if counted:
        here.set_counts(skewed("deepseek-r1"))
    started = time.process_time()
    found = here.fit()
    assert time.process_time() - started < 1.0
    with_pools, without = here.refine(found), here.refine(replace(found, pools=()))
    assert with_pools.fits and with_pools.decode_tok_s >= without.decode_tok_s
    if counted:
        assert found.pools and with_pools.decode_tok_s > 1.15 * without.decode_tok_s
    elif found.pools:  # of chance no more than their share
        most = max(len(pool.experts) for pool in found.pools) / 256
        assert with_pools.decode_tok_s < without.decode_tok_s / (1 - most)


def test_a_pool_serves_what_its_experts_were_counted_for(tmp_path: Path, headers: Path) -> None:
    here = planner("qwen3-235b", headers, tmp_path, 1)
    home = here.move(here.fit(), [unit for unit, _ in here.default().units if unit.kind == "experts"], Numa(0))
    pooled = replace(home, pools=tuple(Pool(layer, Gpu(0), tuple(range(8))) for layer in range(94)))
    bare, even = here.estimate(home).decode_tok_s, here.estimate(pooled).decode_tok_s
    assert bare < even < bare / (1 - 8 / 128)
    here.set_counts({layer: [8] * 8 + [1] * 120 for layer in range(94)})
    assert here.estimate(pooled).decode_tok_s > 1.15 * even
    here.set_counts({layer: [0] * 8 + [1] * 120 for layer in range(94)})
    assert here.estimate(pooled).decode_tok_s <= bare
