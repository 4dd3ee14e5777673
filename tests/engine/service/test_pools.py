"""Pools of experts through the engine: their figures, what they do, and comparisons."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api.commands import ApplyPlacement, ComparePools, Generate, UsePools, WatchExperts
from engine.api.events import Failed, PoolsCompared, PoolStats
from engine.api.values import LoadOptions, PoolMode, SamplingParams
from tests.helpers.golden_models import golden
from tests.helpers.placed import need_torch
from tests.helpers.pooled import pooled
from tests.helpers.recorder import Recorder, new_id

MOE = golden("qwen3moe").path


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> object:
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:1")
    with Recorder() as made:
        yield made


def ask(n: int) -> Generate:
    sampling = SamplingParams(temperature=0.0, max_tokens=n)
    return Generate(new_id(), ids=tuple(range(3, 12)), sampling=sampling, ignore_eog=True)


def stats(recorder: Recorder, mode: PoolMode) -> PoolStats:
    command = UsePools(new_id(), mode)
    recorder.finished(command)
    return next(event for event in recorder.of(command.request_id) if isinstance(event, PoolStats))


def test_figures_follow_what_pools_do(recorder: Recorder) -> None:
    recorder.load(MOE, pooled(MOE, 3))
    assert (first := stats(recorder, "promote")).hits == first.misses == 0
    assert first.hit_rate is None
    recorder.finished(ask(21))
    after = stats(recorder, "off")
    n_layers = len(after.layers)
    assert after.hits + after.misses == 20 * 4 * n_layers and after.hits > 0
    assert after.hits == sum(layer.hits for layer in after.layers)
    assert all(layer.device == "gpu0" and layer.experts for layer in after.layers)
    recorder.finished(ask(21))
    off = stats(recorder, "keep")
    assert off.hits == after.hits and off.misses > after.misses and off.promotions == after.promotions
    recorder.finished(ask(21))
    assert stats(recorder, "keep").hits > off.hits


def test_a_watch_tells_of_pools_too(recorder: Recorder) -> None:
    recorder.load(MOE, pooled(MOE, 3))
    watch = WatchExperts(new_id("watch"), 0.05)
    recorder.finished(watch)
    recorder.finished(ask(30))
    recorder.wait_for(lambda events: any(isinstance(one, PoolStats) and one.hits + one.misses == 29 * 12 for one in events))


@pytest.mark.parametrize("mode", ["promote", "keep"])
def test_a_comparison_is_told_when_there_are_enough_tokens(recorder: Recorder, mode: PoolMode) -> None:
    recorder.load(MOE, pooled(MOE, 3))
    compare = ComparePools(new_id(), mode, n_block=4, n_pairs=3)
    recorder.finished(compare)
    recorder.finished(ask(10))
    assert not any(isinstance(event, PoolsCompared) for event in recorder.events)
    recorder.finished(ask(20))
    found = next(event for event in recorder.of(compare.request_id) if isinstance(event, PoolsCompared))
    assert (found.mode, found.n_pairs) == (mode, 3)
    assert found.with_tok_s > 0 and found.without_tok_s > 0 and found.sigma > 0
    assert stats(recorder, "keep").mode == "keep"


def test_a_comparison_that_is_given_up_is_told(recorder: Recorder) -> None:
    recorder.load(MOE, pooled(MOE, 3))
    compare = ComparePools(new_id(), "keep", n_block=4, n_pairs=3)
    recorder.finished(compare)
    assert next(event for event in recorder.of(compare.request_id) if isinstance(event, PoolStats)).comparing
    assert not stats(recorder, "keep").comparing
    recorder.finished(ask(60))
    assert not any(isinstance(event, PoolsCompared) for event in recorder.events)


def test_a_watch_tells_at_once_what_a_move_has_made_of_the_pools(recorder: Recorder) -> None:
    info = recorder.load(MOE, pooled(MOE, 3))
    assert info.placement is not None and info.placement.pools
    watch = WatchExperts(new_id("watch"), 0.05)
    recorder.finished(watch)
    recorder.finished(ComparePools(new_id(), "keep"))

    def told(n_layers: int) -> None:
        recorder.wait_for(lambda events: [len(one.layers) for one in events if isinstance(one, PoolStats)][-1:] == [n_layers])

    recorder.finished(ApplyPlacement(new_id(), replace(info.placement, pools=())))
    told(0)
    recorder.finished(ApplyPlacement(new_id(), info.placement))
    told(len(info.placement.pools))


def test_models_without_pools_refuse(recorder: Recorder) -> None:
    for command in (UsePools(new_id(), "off"), ComparePools(new_id())):
        end = recorder.run(command)
        assert isinstance(end, Failed) and "no pools" in end.message
    recorder.load(MOE, LoadOptions(n_threads=1, placement="-ngl 0"))
    assert isinstance(recorder.run(UsePools(new_id(), "off")), Failed)
    recorder.load(MOE, pooled(MOE, 3))
    for bad in (UsePools(new_id(), "fly"), ComparePools(new_id(), "off"), ComparePools(new_id(), n_block=0)):  # type: ignore[arg-type]
        assert isinstance(recorder.run(bad), Failed)
