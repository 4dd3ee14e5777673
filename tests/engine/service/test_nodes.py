"""Placements over two NUMA nodes through the engine: what was planned for `numa1` is applied, told, and undone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.api.commands import ApplyPlacement, AskHoldings, Generate
from engine.api.events import Finished, Holdings, PlacementApplied
from engine.api.values import LoadOptions, ModelInfo, Placement, SamplingParams
from engine.placement.placement import Numa
from tests.helpers.golden_models import golden
from tests.helpers.recorder import Recorder, new_id
from tests.helpers.two_nodes import two_nodes

NAME = "qwen2moe"
EXACT = LoadOptions(k_type="f32", v_type="f32", f32_activations=True)
CPUS = sorted(os.sched_getaffinity(0))[:2]
pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="two processors are needed, one for each node")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Recorder]:
    monkeypatch.setenv("LAYERDECK_GPU", "none")
    monkeypatch.setenv("LAYERDECK_ROOT", str(two_nodes(tmp_path / "two", (CPUS[0], CPUS[1]))))
    with Recorder() as made:
        yield made


def placement_of(info: ModelInfo) -> Placement:
    assert info.placement is not None
    return info.placement


def holdings(recorder: Recorder) -> Holdings:
    command = AskHoldings(new_id("ask"))
    assert recorder.finished(command).reason == "done"
    return next(event for event in recorder.of(command.request_id) if isinstance(event, Holdings))


def test_a_model_goes_to_the_other_node_in_the_midst_of_an_answer(recorder: Recorder) -> None:
    info = recorder.load(golden(NAME).path, EXACT)
    start = placement_of(info)
    assert [one.device for one in info.devices] == ["numa0", "numa1"] and start.nodes == (0, 1)
    assert holdings(recorder).node_policy == "split"
    ids = tuple(golden(NAME).ids("medium"))
    answer = Generate(new_id("answer"), ids=ids, sampling=SamplingParams(temperature=0.0, max_tokens=24), ignore_eog=True)
    recorder.engine.submit(answer)
    away = replace(start, spreads=(), units=tuple((unit, Numa(1)) for unit, _ in start.units))
    command = ApplyPlacement(new_id("apply"), away)
    assert recorder.finished(command).reason == "done"
    told = next(event for event in recorder.of(command.request_id) if isinstance(event, PlacementApplied))
    assert told.info.placement == away and [one.device for one in told.info.devices] == ["numa1"]
    found = holdings(recorder)
    assert found.node_policy == "single" and found.node_denied == ""
    assert sum(n for _, n in found.node_pages) > 0 or found.off_node_share is None
    recorder.wait_for(lambda events: any(isinstance(e, Finished) and e.request_id == answer.request_id for e in events))
    back = ApplyPlacement(new_id("apply"), start)
    assert recorder.finished(back).reason == "done"
    assert holdings(recorder).node_policy == "split"
