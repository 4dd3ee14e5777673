"""Pools of experts on emulated GPUs: random ones give the recorded logits, and go on doing so while experts come and go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import engine.runtime.promotion as promotion
from engine.arch.spec import ModelSpec
from engine.arch.units import UnitId
from engine.placement.placement import Device
from engine.runtime.loaded_model import LoadedModel
from engine.runtime.move_plan import with_units
from tests.helpers.golden_models import arrays, batch, golden, greedy
from tests.helpers.models import need_goldens
from tests.helpers.moves import target
from tests.helpers.placed import CPU, EXACT, GPU, anywhere, hybrid, need_torch, on_cpu, open_placed, whole
from tests.helpers.pooled import open_pooled, with_pools

MIXTURES = (
    "qwen3moe",
    "qwen2moe",
    "glm4moe",
    "gpt-oss",
    "deepseek2-lite",
    "deepseek2-v3",
    "qwen35moe",
    "qwen35moe-fused-gate_up",
    "qwen3next",
    "ernie4_5-moe",
    "hunyuan-moe",
    "minimax-m2",
)
QUANTS = ("q256-qwen3moe.Q6_K", "q256-qwen3moe.Q4_K", "q256-qwen3moe.MXFP4_MOE-mix", "q256-qwen35moe.Q4_K_M-mix")


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")


def shared_on_cpu(unit: UnitId, spec: ModelSpec) -> Device:
    """Routers on the GPU, all experts on the CPU."""
    return CPU if unit.kind in ("experts", "shared") else GPU


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", MIXTURES)
def test_random_pools_give_the_recorded_logits_and_answers(name: str, seed: int) -> None:
    model = open_pooled(golden(name).path, seed, (hybrid, shared_on_cpu)[seed % 2])
    assert model.pools is not None
    for prompt in ("short", "medium"):
        recorded, ids = golden(name).logits(prompt), golden(name).ids(prompt)
        assert np.abs(model.step(batch(ids))[-len(recorded) :] - recorded).max() < 2e-3
        assert greedy(model, ids, 16) == golden(name).greedy(prompt)[:16]
    model.close()


@pytest.mark.parametrize("seed", range(8))
def test_pools_beside_units_anywhere_give_the_recorded_logits(seed: int) -> None:
    name = MIXTURES[seed % len(MIXTURES)]

    def where(unit: UnitId, spec: ModelSpec) -> Device:
        return CPU if unit.kind == "experts" else anywhere(seed)(unit, spec)

    model = open_pooled(golden(name).path, seed, where, replace(EXACT, prefill_chunk=(5, 32, 512)[seed % 3]))
    recorded, ids, chunk = golden(name).logits("medium"), golden(name).ids("medium"), (5, 32, 512)[seed % 3]
    parts = [model.step(batch(ids[start : start + chunk], start)) for start in range(0, len(ids), chunk)]
    assert np.abs(np.concatenate(parts)[-len(recorded) :] - recorded).max() < 2e-3
    model.close()


@pytest.mark.parametrize("name", QUANTS)
def test_quantised_experts_are_copied_block_by_block(name: str) -> None:
    """Padded blocks among them."""
    folder = need_goldens("quant")
    path, recorded = folder / f"{name}.gguf", arrays(folder / f"{name}.golden.npz")
    model = open_pooled(path, 4)
    ids = recorded["medium_tokens"].tolist()
    expected = recorded["medium_logits_last16_dequant_f32"]
    assert np.abs(model.step(batch(ids))[-len(expected) :] - expected).max() < 2e-3
    model.close()


def decode(model: LoadedModel, ids: list[int], start: int = 0) -> np.ndarray:
    return np.concatenate([model.step(batch([token], at)) for at, token in enumerate(ids, start)])


@pytest.mark.parametrize("name", ["qwen3moe", "gpt-oss", "deepseek2-v3", "q256-qwen3moe.Q6_K"])
def test_logits_stay_the_same_while_experts_come_and_go(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(promotion, "MARGIN", 1e-9)  # whatever is missed is moved
    path: Path = need_goldens("quant") / f"{name}.gguf" if name.startswith("q256") else golden(name).path
    ids = golden("qwen3moe").ids("long")[:120]
    theirs = open_placed(path, on_cpu)
    ours = open_pooled(path, 5, most=6)
    assert ours.pools is not None
    expected, found = decode(theirs, ids), decode(ours, ids)
    assert np.abs(found - expected).max() < 2e-3
    figures = ours.pools.figures()
    assert sum(one.promotions for one in figures) > 15
    held = [one.experts for one in figures]
    for mode in ("keep", "off", "promote"):
        ours.pools.use(mode)  # type: ignore[arg-type]
        assert np.abs(decode(ours, ids) - expected).max() < 2e-3
        if mode != "promote":
            kept = [one.experts for one in ours.pools.figures()]
    assert kept == held
    assert np.abs(ours.step(batch(ids))[-1] - expected[-1]).max() < 2e-3
    ours.close()
    theirs.close()


def test_every_pass_of_a_decoded_token_is_a_hit_or_a_miss() -> None:
    model = open_pooled(golden("qwen3moe").path, 3)
    assert model.pools is not None and model.experts is not None
    model.step(batch(golden("qwen3moe").ids("short")))
    model.experts.clear()
    decode(model, golden("qwen3moe").ids("medium")[:30], 40)
    counted = model.experts.counts
    for place, one in enumerate(model.pools.figures()):
        assert one.hits + one.misses == counted[place].sum() == 30 * model.experts.moe.used[place]
    model.close()


@pytest.mark.parametrize("mode", ["promote", "keep"])
def test_a_comparison_goes_on_beside_answers_and_ends(mode: str) -> None:
    model = open_pooled(golden("qwen3moe").path, 3)
    assert model.pools is not None
    model.pools.use("keep")
    model.pools.compare(mode, 4, 3)  # type: ignore[arg-type]
    ids = golden("qwen3moe").ids("medium")
    for at in range(24):
        assert model.pools.compared() is None
        model.step(batch(ids[at : at + 1], at))
    found = model.pools.compared()
    assert found is not None and found[0] == mode and found[1].n_pairs == 3
    assert model.pools.compared() is None and model.pools.mode == "keep"
    model.close()


def test_pools_come_and_go_while_the_model_is_loaded() -> None:
    """A move to other pools, to none, and to experts on the GPU as a whole, counted on through all of it."""
    path, ids = golden("qwen3moe").path, golden("qwen3moe").ids("medium")
    expected = golden("qwen3moe").logits("medium")
    model = open_pooled(path, 3)
    assert model.placement is not None and model.experts is not None
    model.step(batch(ids[:40]))
    plain = replace(model.placement, pools=())
    others = [
        with_pools(plain, model.spec, 8),
        plain,
        replace(target(model, whole), pools=()),
        with_pools(plain, model.spec, 9, most=3),
    ]
    for done, placement in enumerate(others):
        model.move(placement)
        assert (model.pools is not None) == bool(placement.pools)
        assert np.abs(model.step(batch(ids[40 + done : 41 + done], 40 + done))[0] - expected[40 + done]).max() < 2e-3
    assert model.experts.n_tokens == 44
    model.close()


def test_what_pools_have_learned_goes_along_with_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit elsewhere leaves the pools of other layers as they are by now, not as they were placed."""
    monkeypatch.setattr(promotion, "MARGIN", 1e-9)
    model = open_pooled(golden("qwen3moe").path, 3, most=4)
    ids = golden("qwen3moe").ids("medium")
    decode(model, ids[:40])
    assert model.pools is not None and model.placement is not None
    held = [one.experts for one in model.pools.figures()]
    assert held != [pool.experts for pool in model.placement.pools]
    placed = model.placement
    model.move(with_units(placed, {UnitId("embed"): CPU}))
    assert [one.experts for one in model.pools.figures()] == held
    assert model.placement.pools == placed.pools
    expected = golden("qwen3moe").logits("medium")
    assert np.abs(model.step(batch(ids[40:41], 40))[0] - expected[40]).max() < 2e-3
    model.move(replace(model.placement, pools=(replace(placed.pools[0], experts=(7,)),)))
    assert [one.experts for one in model.pools.figures()] == [(7,)]
    model.close()


def test_units_that_move_leave_pools_without_sense_behind() -> None:
    model = open_pooled(golden("qwen3moe").path, 3)
    assert model.placement is not None and len(model.placement.pools) == 3
    moved = with_units(model.placement, {UnitId("experts", 1): GPU, UnitId("ffn", 2): CPU})
    assert [pool.layer for pool in moved.pools] == [0]
    model.move(moved)
    assert model.pools is not None and [one.layer for one in model.pools.figures()] == [0]
    model.close()


def test_the_whole_set_is_in_memory_and_copies_are_counted() -> None:
    def held(open_it: Callable[[], LoadedModel]) -> dict[tuple[str, str], int]:
        model = open_it()
        found = {(str(one.device), one.owner): one.nbytes for one in model.residency.holdings}
        model.close()
        return found

    path = golden("qwen3moe").path
    plain, with_pool = held(lambda: open_placed(path, hybrid)), held(lambda: open_pooled(path, 3))
    assert with_pool["numa0", "weights"] == plain["numa0", "weights"]
    assert with_pool["gpu0", "weights"] > plain["gpu0", "weights"]
