"""Measuring this machine from the placement page: offered where its speed is assumed, told, stopped, and taken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from app.windows.placement_controller import PlacementController
from engine.api.pure import Numa, UnitId, save_rates
from engine.estimate.rates import assumed
from engine.spawn import HelperProcess
from tests.helpers.placement_bench import PlacementBench, placement_bench

pytestmark = pytest.mark.usefixtures("themed")
ASSUMED = "This machine was not measured yet: speeds are estimated from usual rates of such hardware."


@pytest.fixture
def bench(qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlacementBench]:
    monkeypatch.setattr("engine.api.pure.user_data_dir", lambda: tmp_path)
    with placement_bench(qtbot, tmp_path) as made:
        yield made


def opened(bench: PlacementBench, ask: Callable[[HelperProcess], dict[str, Any]]) -> PlacementController:
    bench.parts.calibrate._ask = ask
    controller = PlacementController(bench.parts)
    bench.qtbot.addWidget(controller.page)
    controller.page.resize(1400, 900)
    controller.page.show()
    bench.open()
    return controller


def test_what_was_measured_changes_the_figures_and_nothing_else(bench: PlacementBench) -> None:
    go = threading.Event()

    def ask(_helper: HelperProcess) -> dict[str, Any]:
        assert go.wait(20)
        machine = bench.desk.machine
        assert machine is not None
        rates = assumed(machine)
        nodes = tuple(replace(one, read_gbps=tuple((n, 4 * gbps) for n, gbps in one.read_gbps)) for one in rates.nodes)
        save_rates(replace(rates, nodes=nodes, measured=True), machine)
        return {"node_gbps": [400.0], "n_gpus": 2}

    controller = opened(bench, ask)
    strip, notices = controller.page.strip, list[str]()
    controller.notice.connect(notices.append)
    assert strip.text == ASSUMED and strip.accessibleName() == ASSUMED
    assert strip.first.text() == "Measure this machine" and strip.second.text() == "Not now"
    bench.desk.move([UnitId("experts", 3)], Numa(0))
    before, placement, undo = bench.desk.prediction, bench.placement, bench.desk.undo_text
    strip.first.click()
    assert strip.text.startswith("Measuring this machine, 0 s so far") and not strip.first.isVisible()
    assert strip.second.text() == "Stop measuring"
    go.set()
    bench.qtbot.waitUntil(lambda: strip.isHidden(), timeout=20_000)
    after = bench.desk.prediction
    assert before is not None and after is not None
    assert after.calibrated and not before.calibrated and after.decode_tok_s != before.decode_tok_s
    assert (bench.placement, bench.desk.undo_text) == (placement, undo)
    assert notices == ["Memory reads 400 GB/s. Models that are planned from now on are estimated with it."]


def test_measuring_can_be_stopped_and_is_offered_again(bench: PlacementBench) -> None:
    started, over = threading.Event(), threading.Event()

    def ask(_helper: HelperProcess) -> dict[str, Any]:
        started.set()
        assert over.wait(20)
        return {"error": "killed"}

    controller = opened(bench, ask)
    strip = controller.page.strip
    strip.first.click()
    bench.qtbot.waitUntil(started.is_set)
    strip.second.click()
    over.set()
    bench.qtbot.waitUntil(lambda: not bench.parts.calibrate.running, timeout=20_000)
    assert strip.text == ASSUMED
    strip.second.click()
    assert strip.isHidden()


def test_what_goes_wrong_is_said(bench: PlacementBench) -> None:
    controller = opened(bench, lambda _helper: {"error": "the disk is full"})
    with bench.qtbot.waitSignal(controller.notice) as told:
        controller.page.strip.first.click()
    assert told.args == ["The machine could not be measured: the disk is full"]
    assert controller.page.strip.text == ASSUMED


def test_a_placement_that_does_not_fit_comes_first(bench: PlacementBench) -> None:
    controller = opened(bench, lambda _helper: {"error": ""})
    bench.desk._set_state("does not fit")
    assert controller.page.strip.text != ASSUMED
