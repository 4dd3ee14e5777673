"""A loaded model moves from placement to placement in the midst of its answers: as if it had been loaded where it lies now."""

from __future__ import annotations

import gc
import random
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.errors import PlacementError
from engine.placement.placement import Gpu, Numa, Pool
from engine.runtime.loader import LoadedModel
from tests.helpers.golden_models import batch, golden, greedy
from tests.helpers.moves import Talk, holdings, noted_tensors, target
from tests.helpers.placed import EXACT, Where, anywhere, hybrid, need_torch, on_cpu, open_placed, split, whole
from tests.helpers.pooled import with_pools

KINDS = (
    "qwen3",
    "qwen3moe",
    "gemma3",
    "gpt-oss",
    "deepseek2-lite",
    "deepseek2-v3",
    "qwen35",
    "qwen35moe",
    "qwen3next",
    "glm4moe",
)
"""Grouped attention, windows, sinks, latent attention, gated DeltaNet, experts with and without shared ones."""
PLACES = (on_cpu, whole, hybrid, split)


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")


def some_where(rng: random.Random) -> Where:
    """One of the usual placements, or every unit anywhere."""
    return rng.choice((*PLACES, anywhere(rng.randrange(1000)), anywhere(rng.randrange(1000))))


@pytest.mark.parametrize("name", KINDS)
def test_answers_go_on_over_random_moves(name: str) -> None:
    """Five moves in an answer, fifty in all: nothing is computed again, and the rest of the chat finds its prefix."""
    rng = random.Random(f"moves {name}")
    where = some_where(rng)
    talk = Talk(open_placed(golden(name).path, where))
    ids = golden(name).ids("medium")
    talk.ask("answer", ids, 32)
    for _ in range(5):
        talk.steps(3)
        where = some_where(rng)
        talk.move(where, beside=rng.randrange(3))
        assert talk.model.placement == target(talk.model, where)
    assert not talk.session.idle
    talk.run()
    answer = talk.ids("answer")
    assert answer == golden(name).greedy("medium")
    assert talk.counted.n_prefilled == len(ids)

    fresh = open_placed(golden(name).path, where)
    assert holdings(talk.model) == holdings(fresh)
    longer = [*ids, *answer, 7, 8, 9]
    talk.ask("longer", longer, 12)
    talk.run()
    talk.ask("again", ids, 32)
    talk.run()
    assert talk.ids("longer") == greedy(fresh, longer, 12)
    assert talk.ids("again") == greedy(fresh, ids, 32)
    assert talk.end("longer").usage.n_reused >= len(ids) and talk.end("again").usage.n_reused > 0
    talk.model.close()
    fresh.close()


@pytest.mark.parametrize("name", ["qwen3", "gemma3", "qwen35moe", "deepseek2-lite"])
def test_several_answers_and_a_prompt_half_way_move_too(name: str) -> None:
    talk = Talk(open_placed(golden(name).path, on_cpu, replace(EXACT, prefill_chunk=32)), 32)
    talk.ask("one", golden(name).ids("medium"), 24)
    talk.steps(4)
    talk.ask("two", golden(name).ids("short"), 24)
    talk.steps(3)
    talk.ask("late", golden(name).ids("long"), 8)
    talk.steps(3)  # its first chunks
    for where in (split, hybrid, whole, on_cpu):
        talk.move(where)
        talk.steps(2)
    talk.run()
    assert talk.ids("one") == golden(name).greedy("medium")[:24]
    assert talk.ids("two") == golden(name).greedy("short")[:24]
    assert talk.ids("late") == golden(name).greedy("long")[:8]
    usages = [talk.end(one).usage for one in ("one", "two", "late")]
    assert talk.counted.n_prefilled == sum(one.n_prompt - one.n_reused for one in usages)
    talk.model.close()


@pytest.mark.parametrize("kind", ["f32", "f16", "q8_0", "int8"])
@pytest.mark.parametrize("name", ["qwen3", "gemma3", "deepseek2-lite", "qwen35"])
def test_caches_and_states_there_and_back_are_the_same_bytes(name: str, kind: Any) -> None:
    talk = Talk(open_placed(golden(name).path, on_cpu, replace(EXACT, k_type=kind, v_type=kind)))
    talk.ask("answer", golden(name).ids("medium"), 32)
    talk.steps(8)
    live, before = talk.session.live(), contents(talk.model)
    assert sum(map(len, live.blocks)) > 0
    talk.move(whole, 0)
    talk.move(split, 0)
    talk.move(on_cpu, 0)
    after = contents(talk.model)
    for layer, rows in before.items():
        wanted = live.slots if layer in talk.model.placed.states.layers else live.blocks[group(talk.model, layer)]  # type: ignore[union-attr]
        assert len(wanted) and np.array_equal(rows[wanted], after[layer][wanted])
        assert rows[wanted].any()
    talk.model.close()


def contents(model: LoadedModel) -> dict[int, np.ndarray[Any, Any]]:
    """By layer, the bytes of its blocks or slots on the CPU."""
    placed = model.placed
    assert placed is not None
    found = {layer: (one.arena, one.block_bytes) for layer, one in placed.cache.layers.items()}
    found |= {layer: (one.arena, one.slot_bytes) for layer, one in placed.states.layers.items()}
    return {
        layer: np.frombuffer(memoryview(arena), np.uint8).reshape(-1, nbytes).copy() for layer, (arena, nbytes) in found.items()
    }


def group(model: LoadedModel, layer: int) -> int:
    """The cache group of a layer."""
    assert model.placed is not None
    return model.placed.cache.layers[layer].group


@pytest.mark.parametrize("kind", ["q8_0", "int8"])
@pytest.mark.parametrize("name", ["qwen3", "gpt-oss", "deepseek2-lite"])
def test_what_a_cache_of_fewer_bits_holds_means_the_same_elsewhere(name: str, kind: Any) -> None:
    """A prompt that was computed on the CPU and moved, beside one that was computed where it lies."""
    options = replace(EXACT, k_type=kind, v_type=kind)
    moved, there = open_placed(golden(name).path, on_cpu, options), open_placed(golden(name).path, whole, options)
    ids = golden(name).ids("medium")
    for model in (moved, there):
        model.step(batch(ids[:-1], 0, 0))
    moved.move(target(moved, whole))
    ours, theirs = moved.step(batch(ids[-1:], len(ids) - 1)), there.step(batch(ids[-1:], len(ids) - 1))
    assert np.abs(ours - theirs).max() < 0.02 * np.abs(theirs).max()
    moved.close()
    there.close()


def test_only_what_differs_is_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    model = open_placed(golden("qwen3moe").path, whole)
    weights = {one.name: one.nbytes for one in model.source.file.tensors.values() if "exps" in one.name}
    found = model.move(target(model, hybrid))
    assert found.moved_bytes == sum(weights.values())
    assert model.move(target(model, hybrid)).moved_bytes == 0
    back = model.move(target(model, whole))
    assert back.moved_bytes == sum(weights.values())
    model.close()


def test_what_has_moved_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = noted_tensors(monkeypatch)
    model = open_placed(golden("qwen35moe").path, on_cpu)
    threads = threading.active_count()
    for where in (whole, split, on_cpu):
        model.move(target(model, where))
    gc.collect()
    assert tensors and not [one for one in tensors if one() is not None]
    assert threading.active_count() == threads
    model.close()
    assert threading.active_count() <= threads


@pytest.mark.parametrize("name", ["qwen3moe", "qwen35moe"])
def test_experts_that_pass_through_a_ring_move_too(name: str) -> None:
    """Long chunks bring the CPU's experts to the GPU, before and after, and what is told about the bus stays known."""
    options = replace(EXACT, stream_experts="on", prefill_chunk=32)
    talk = Talk(open_placed(golden(name).path, hybrid, options), 32)
    ids = golden(name).ids("medium")
    talk.ask("answer", ids, 32)
    talk.steps(6)
    for where in (lambda unit, spec: Numa(0) if unit.kind == "experts" and unit.layer else Gpu(0), split, hybrid):
        talk.move(where)
        talk.steps(3)
    talk.run()
    assert talk.ids("answer") == golden(name).greedy("medium")
    fresh = open_placed(golden(name).path, hybrid, options)
    assert holdings(talk.model) == holdings(fresh)
    talk.ask("other", golden(name).ids("long"), 8)
    talk.run()
    assert talk.ids("other") == golden(name).greedy("long")[:8]
    talk.model.close()
    fresh.close()


@pytest.mark.parametrize("name", ["qwen3moe", "gpt-oss"])
def test_pools_of_experts_are_made_where_they_are_wanted_and_go_again(name: str) -> None:
    talk = Talk(open_placed(golden(name).path, hybrid))
    plain = talk.model.placement
    assert plain is not None and talk.model.pools is None
    talk.ask("answer", golden(name).ids("medium"), 32)
    for placement in (with_pools(plain, talk.model.spec, 1), with_pools(plain, talk.model.spec, 2), plain):
        talk.steps(5)
        talk.finish(talk.model.begin_move(placement, talk.session.live))
        assert talk.model.placement == placement and (talk.model.pools is not None) == bool(placement.pools)
        if talk.model.pools is not None:
            assert talk.model.pools.mode == "promote"
            talk.model.pools.use("keep")
            talk.finish(talk.model.begin_move(placement, talk.session.live), 0)
            assert talk.model.pools.mode == "keep"
            talk.model.pools.use("promote")
    talk.run()
    assert talk.ids("answer") == golden(name).greedy("medium")
    fresh = open_placed(golden(name).path, hybrid)
    assert holdings(talk.model) == holdings(fresh)
    with pytest.raises(PlacementError, match=r"no experts to pool|must name some of the experts"):
        talk.model.begin_move(replace(plain, pools=(Pool(1, Gpu(0), (9999,)),)))
    fresh.close()
    talk.model.close()


@pytest.mark.parametrize("name", ["qwen3moe", "gemma3", "deepseek2-v3", "qwen3next"])
def test_getting_warm_beside_steps_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on real devices: every plan runs on padding alone, by the thread that builds, while the other one steps."""
    monkeypatch.setattr("engine.runtime.gpu_warmup.needs_warmth", lambda sides: True)
    talk = Talk(open_placed(golden(name).path, hybrid))
    talk.ask("answer", golden(name).ids("medium"), 32)
    for where in (whole, split, anywhere(5), hybrid):
        talk.steps(2)
        talk.move(where, beside=4)
    talk.run()
    assert talk.ids("answer") == golden(name).greedy("medium")
    talk.model.close()


def test_states_keep_their_slots_wherever_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small card sets how many snapshots there are, also for a model that is on the CPU now."""
    path = golden("qwen35").path
    monkeypatch.setattr("engine.estimate.states.SNAPSHOT_SHARE", 0.005)  # of a tiny model's card, enough to matter
    large = open_placed(path, on_cpu)
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:1x0.03")
    model, there = open_placed(path, on_cpu), open_placed(path, whole)
    assert model.state_slots == there.state_slots < large.state_slots
    model.move(target(model, whole))
    assert holdings(model) == holdings(there)
    for one in (large, model, there):
        one.close()
