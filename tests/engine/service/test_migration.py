"""ApplyPlacement and AskHoldings through the engine: what is told, in the midst of answers and idle, stopped and refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from engine.api.commands import ApplyPlacement, AskHoldings, Generate, LoadModel, UnloadModel
from engine.api.events import Failed, Finished, Holdings, MigrationProgress, ModelUnloaded, PlacementApplied, TokenDelta
from engine.api.values import LoadOptions, ModelInfo, Placement, SamplingParams
from engine.arch.units import UnitId
from engine.placement.placement import Device, Gpu, Numa
from engine.runtime import move
from tests.helpers.golden_models import golden
from tests.helpers.placed import need_torch
from tests.helpers.recorder import Recorder, new_id

NAME = "qwen3moe"
EXACT = LoadOptions(n_threads=1, k_type="f32", v_type="f32", f32_activations=True)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")
    with Recorder() as made:
        yield made


def loaded(recorder: Recorder, name: str = NAME) -> ModelInfo:
    """A model on the CPU."""
    return recorder.load(golden(name).path, replace(EXACT, placement="-ngl 0"))


def all_on(info: ModelInfo, device: Device) -> Placement:
    assert info.placement is not None
    return replace(info.placement, units=tuple((unit, device) for unit, _ in info.placement.units))


def apply(placement: Placement) -> ApplyPlacement:
    return ApplyPlacement(new_id("apply"), placement)


def answer(n: int = 32) -> Generate:
    ids = tuple(golden(NAME).ids("medium"))
    return Generate(new_id("answer"), ids=ids, sampling=SamplingParams(temperature=0.0, max_tokens=n), ignore_eog=True)


def wait_for_text(recorder: Recorder, request: Generate) -> None:
    recorder.wait_for(lambda events: any(isinstance(e, TokenDelta) and e.request_id == request.request_id for e in events))


def test_an_idle_engine_moves_and_tells_where_everything_lies(recorder: Recorder) -> None:
    info = loaded(recorder)
    assert info.placement is not None and info.placement.devices == (Numa(0),)
    assert {one.device for one in info.holdings} == {"numa0"} and {one.owner for one in info.holdings} >= {"weights", "kv"}
    command = apply(all_on(info, Gpu(1)))
    assert recorder.finished(command).reason == "done"
    events = recorder.of(command.request_id)
    told = next(e for e in events if isinstance(e, PlacementApplied))
    assert isinstance(events[0], MigrationProgress) and events[-2] is told
    assert told.info.placement == command.placement and told.moved_bytes > 0 and 0 <= told.pause_s < 5
    weights = {one.device: one.nbytes for one in told.info.holdings if one.owner == "weights"}
    assert set(weights) == {"gpu1"} and weights["gpu1"] == pytest.approx(info.holdings[0].nbytes, rel=0.01)
    assert [one.device for one in told.info.devices] == ["numa0", "gpu1"]
    assert any("gpu1: played by the CPU" in one for one in told.info.fallbacks)
    assert list(recorder.finished(answer()).usage.token_ids) == golden(NAME).greedy("medium")


def test_an_answer_goes_on_while_the_model_moves(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    info, there = loaded(recorder), []
    usual = move.Move._switch

    def switch(self: Any, *args: Any) -> None:
        there.append(len(self._live().blocks[0]))
        usual(self, *args)

    monkeypatch.setattr(move.Move, "_switch", switch)
    request = answer(400)
    recorder.engine.submit(request)
    wait_for_text(recorder, request)
    for device in (Gpu(0), Numa(0)):
        assert recorder.finished(apply(all_on(info, device))).reason == "done"
    moved = recorder.end_of(request.request_id)
    assert isinstance(moved, Finished) and len(moved.usage.token_ids) == 400
    assert list(moved.usage.token_ids[:32]) == golden(NAME).greedy("medium")
    assert len(there) == 2 and there[0] >= 2  # the prompt alone fills a block and begins another
    again = recorder.finished(replace(request, request_id=new_id()))
    assert again.usage.n_reused > 0


def test_a_cancel_ends_it_and_leaves_the_answers_alone(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    info, request = loaded(recorder), answer()
    command = apply(all_on(info, Gpu(0)))
    usual = move.Move._tell

    def tell(self: Any, phase: str, done: int, total: int) -> None:
        usual(self, phase, done, total)
        if phase == "weights":
            recorder.cancel(command.request_id)
            while not self._abort.is_set:
                time.sleep(0.001)

    monkeypatch.setattr(move.Move, "_tell", tell)
    recorder.engine.submit(request)
    assert recorder.finished(command).reason == "cancelled"
    assert not [e for e in recorder.of(command.request_id) if isinstance(e, PlacementApplied)]
    assert list(recorder.finished(replace(request, request_id=new_id())).usage.token_ids) == golden(NAME).greedy("medium")
    monkeypatch.setattr(move.Move, "_tell", usual)
    assert recorder.finished(apply(all_on(info, Gpu(0)))).reason == "done"


def test_one_at_a_time(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    info, usual = loaded(recorder), move.Move._hop
    held: list[bool] = [True]

    def hop(self: Any, where: Any) -> None:
        while held[0]:
            time.sleep(0.001)
        usual(self, where)

    monkeypatch.setattr(move.Move, "_hop", hop)
    first, second = apply(all_on(info, Gpu(0))), apply(all_on(info, Gpu(1)))
    recorder.engine.submit(first)
    refused = recorder.run(second)
    assert (
        isinstance(refused, Failed)
        and refused.kind == "InvalidRequest"
        and "another placement is being applied" in refused.message
    )
    held[0] = False
    assert isinstance(recorder.end_of(first.request_id), Finished)


@pytest.mark.parametrize("how", ["unload", "load", "close"])
def test_a_model_that_goes_ends_its_move(recorder: Recorder, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    info, usual = loaded(recorder), move.Move._tell

    def tell(self: Any, phase: str, done: int, total: int) -> None:
        usual(self, phase, done, total)
        while phase == "weights" and not self._abort.is_set:
            time.sleep(0.001)

    monkeypatch.setattr(move.Move, "_tell", tell)
    command = apply(all_on(info, Gpu(0)))
    recorder.engine.submit(command)
    recorder.wait_for(lambda events: any(isinstance(e, MigrationProgress) for e in events))
    if how == "unload":
        recorder.finished(UnloadModel(new_id()))
    elif how == "load":
        recorder.finished(LoadModel(new_id(), str(golden(NAME).path), replace(EXACT, placement="-ngl 0")))
    else:
        recorder.engine.close()
    end = recorder.end_of(command.request_id)
    assert isinstance(end, Finished) and end.reason == "cancelled"
    if how == "unload":
        assert any(isinstance(e, ModelUnloaded) for e in recorder.events)


def test_what_cannot_be_is_refused_in_a_sentence(recorder: Recorder) -> None:
    nothing = recorder.run(ApplyPlacement(new_id(), Placement((), "f16", "f16", all_cores())))
    assert isinstance(nothing, Failed) and "no model is loaded" in nothing.message
    info = loaded(recorder)
    for placement, kind, words in (
        (all_on(info, Gpu(9)), "PlacementError", "gpu9"),
        (replace(all_on(info, Gpu(0)), k_type="f16"), "PlacementError", "load the model again"),
        (replace(all_on(info, Gpu(0)), units=((UnitId("embed"), Gpu(0)),)), "PlacementError", "another model"),
    ):
        end = recorder.run(apply(placement))
        assert isinstance(end, Failed) and (end.kind, end.is_bug) == (kind, False) and words in end.message
    assert recorder.finished(apply(all_on(info, Numa(0)))).reason == "done"
    recorder.load(golden(NAME).path, LoadOptions(reference=True))
    end = recorder.run(apply(all_on(info, Numa(0))))
    assert isinstance(end, Failed) and "the reference model has no placement" in end.message


def all_cores() -> Any:
    from engine.placement.placement import plan_workers

    return plan_workers(0)


def test_holdings_are_told_at_any_time(recorder: Recorder) -> None:
    info = loaded(recorder)
    recorder.finished(apply(all_on(info, Gpu(0))))
    command = AskHoldings(new_id())
    recorder.finished(command)
    told = next(e for e in recorder.of(command.request_id) if isinstance(e, Holdings))
    assert {one.device for one in told.holdings} == {"numa0", "gpu0"}
    assert told.off_node_share is None or 0 <= told.off_node_share <= 1
    assert {one.device: one.sentence for one in told.trends} == {"numa0": "", "gpu0": ""}
    assert sum(one.nbytes for one in told.holdings if one.device == "gpu0") == next(
        one.nbytes for one in told.trends if one.device == "gpu0"
    )
