"""The window of cores that work: from where it opens, what it asks of the engine, what it says of the answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton

from app.shots.worker_screens import machine
from app.windows.workers_window import WorkersWindow
from engine.api.commands import Cancel, PinWorkers, TuneWorkers, WatchSensors
from engine.api.values import CoreSample, ModelInfo
from engine.placement.placement import Placement, WorkerPlan
from tests.app.windows.conftest import Stage
from tests.helpers.fake_engine import Stall, model_info, snapshot

pytestmark = pytest.mark.qt_log_ignore("This plugin does not support raise", extend=True)


def placed(path: str) -> ModelInfo:
    return replace(model_info(path), placement=Placement((), "f16", "f16", WorkerPlan((0, 1, 2, 3))))


@pytest.fixture
def loaded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(type(stage.parts.monitors), "topology", property(lambda self: machine(2, 2, 4, 2)))
    stage.engine.describe = placed
    stage.load()
    return stage


def opened(stage: Stage, node: int | None = None) -> WorkersWindow:
    stage.window.workers.open(node)
    found = stage.window.findChildren(WorkersWindow)
    assert len(found) == 1 and found[0].isVisible()
    return found[0]


def test_it_opens_from_the_palette_the_settings_and_with_a_node(loaded: Stage) -> None:
    action = loaded.window.actions_.action("workers")
    assert action in loaded.window.actions_.offered()
    action.trigger()
    window = opened(loaded, 1)
    assert "node 1" in window.pane.grid.accessibleDescription()
    window.close()
    loaded.window.preferences.open("engine")
    dialog = loaded.window.preferences._dialog
    assert dialog is not None
    with loaded.qtbot.waitSignal(dialog.workers_requested):
        button = next(one for one in dialog.findChildren(type(window.pane.apply)) if one.text() == "Choose the cores")
        button.click()
    opened(loaded)
    dialog.close()
    assert not loaded.window.findChildren(QPushButton)  # all buttons are ours, with their rings


def test_the_monitors_page_opens_it_with_a_node(loaded: Stage) -> None:
    loaded.window.show_page("monitors")
    loaded.window.monitors.controller().page.board.workers_requested.emit(1)
    (window,) = loaded.window.findChildren(WorkersWindow)
    assert window.isVisible() and "node 1" in window.pane.grid.accessibleDescription()


def test_apply_moves_the_workers_and_tells_the_time(loaded: Stage) -> None:
    window = opened(loaded)
    pane = window.pane
    assert pane.list.text() == "0-3"
    loaded.qtbot.keyClicks(pane.list, ",8")
    loaded.qtbot.mouseClick(pane.apply, Qt.MouseButton.LeftButton)
    loaded.qtbot.waitUntil(lambda: "the change took" in pane.state.text())
    assert pane.state.text() == "5 workers since then; the change took 1.2 ms."
    assert [one.cpus for one in loaded.engine.commands if isinstance(one, PinWorkers)] == ["0-3,8"]
    assert pane.grid.chosen == (0, 1, 2, 3, 8) and not pane.apply.isEnabled()
    model = loaded.parts.bridge.state.model
    assert model is not None and model.placement is not None and model.placement.workers.cores == (0, 1, 2, 3, 8)


def test_what_is_refused_leaves_everything_and_says_so(loaded: Stage) -> None:
    loaded.engine.refused = ("0-4",)
    pane = opened(loaded).pane
    pane.list.setText("0-4")
    pane.list.textEdited.emit("0-4")
    pane.apply.click()
    loaded.qtbot.waitUntil(lambda: "the workers stay where they were" in pane.state.text())
    assert pane.working == (0, 1, 2, 3) and pane.apply.isEnabled()


def test_the_sweep_is_shown_used_stopped_and_forgotten(loaded: Stage) -> None:
    pane = opened(loaded).pane
    pane.tuning.start.click()
    loaded.qtbot.waitUntil(lambda: "kept for the next load" in pane.tuning.state.text())
    assert not pane.tuning.table.isHidden()
    pane.tuning.best.click()
    loaded.qtbot.waitUntil(lambda: "the change took" in pane.state.text())
    assert pane.working == (0, 1)
    loaded.engine.tune = (Stall(30),)
    pane.tuning.start.click()
    loaded.qtbot.waitUntil(lambda: pane.tuning.start.text() == "Stop")
    pane.tuning.start.click()
    loaded.qtbot.waitUntil(lambda: "Stopped; nothing of it was kept" in pane.tuning.state.text())
    assert [type(one) for one in loaded.engine.commands].count(Cancel) == 1
    loaded.engine.tune = ()
    pane.tuning.forget.click()
    loaded.qtbot.waitUntil(lambda: "Forgotten" in pane.state.text())
    assert [one.forget for one in loaded.engine.commands if isinstance(one, TuneWorkers)] == [False, False, True]


def test_use_is_read_while_it_is_seen_and_only_then(loaded: Stage) -> None:
    loaded.window.page.side_panel.hide()
    window = opened(loaded)
    monitors = loaded.parts.monitors
    assert "workers" in monitors._watchers
    monitors.read.emit(replace(snapshot(), cores=(CoreSample(0, (0, 16), (25.0, 75.0)),)))
    assert window.pane.grid.sentence(16).endswith("75 % busy")
    window.hide()
    assert "workers" not in monitors._watchers
    assert any(isinstance(one, WatchSensors) for one in loaded.engine.commands)
