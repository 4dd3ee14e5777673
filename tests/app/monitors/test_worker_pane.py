"""The pane of cores that work: picture, list and presets say the same; Apply only where something would change."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.monitors.worker_pane import WorkerPane
from app.shots.worker_screens import machine
from engine.api.events import TunedRate, TuneProgress, WorkersTuned
from engine.api.values import RequestId


@pytest.fixture
def pane(qtbot: QtBot) -> WorkerPane:
    made = WorkerPane(machine(2, 2, 4, 2))
    qtbot.addWidget(made)
    made.resize(800, 700)
    made.show()
    made.set_working(tuple(range(8)))
    return made


def choose(pane: WorkerPane, name: str) -> None:
    index = pane.presets.findText(name)
    assert index > 0
    pane.presets.setCurrentIndex(index)
    pane.presets.activated.emit(index)


def type_in(qtbot: QtBot, pane: WorkerPane, text: str) -> None:
    pane.list.clear()
    qtbot.keyClicks(pane.list, text)


def test_it_shows_who_works_now(pane: WorkerPane) -> None:
    assert (pane.grid.chosen, pane.list.text()) == (tuple(range(8)), "0-7")
    assert not pane.apply.isEnabled() and pane.state.text() == "8 workers, as it is now."


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Worker plan", "0-14"),
        ("Every core", "0-15"),
        ("Every thread", "0-31"),
        ("Node 1", "8-15"),
        ("L3 group 2", "8-11"),
    ],
)
def test_presets_fill_picture_and_list(pane: WorkerPane, name: str, text: str) -> None:
    choose(pane, name)
    assert pane.list.text() == text and pane.apply.isEnabled()
    assert pane.presets.currentIndex() == 0  # ready for the next one


def test_a_typed_list_is_painted_and_applied(qtbot: QtBot, pane: WorkerPane) -> None:
    type_in(qtbot, pane, "0-2,8")
    assert pane.grid.chosen == (0, 1, 2, 8) and pane.state.text() == "4 workers once applied; answers go on."
    with qtbot.waitSignal(pane.apply_requested) as told:
        qtbot.keyClick(pane.list, Qt.Key.Key_Return)
    assert told.args == ["0-2,8"]
    type_in(qtbot, pane, "3-3")
    with qtbot.waitSignal(pane.apply_requested) as told:
        qtbot.mouseClick(pane.apply, Qt.MouseButton.LeftButton)
    assert (pane.grid.chosen, told.args) == ((3,), ["3-3"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0-40", "Processors 32-40 are not in this machine; this program may use 0-31."),
        ("1,1", "Processor 1 listed twice"),
        ("x", "is no list of processors"),
        ("", "Nobody works"),
    ],
)
def test_a_mistake_is_one_sentence_and_cannot_be_applied(qtbot: QtBot, pane: WorkerPane, text: str, words: str) -> None:
    pane.list.setText("5")
    pane.list.setText(text)
    pane.list.textEdited.emit(text)
    assert words in pane.state.text() and not pane.apply.isEnabled()
    with qtbot.assertNotEmitted(pane.apply_requested):
        qtbot.keyClick(pane.list, Qt.Key.Key_Return)


def test_nothing_can_be_done_without_a_model_or_while_something_is_under_way(pane: WorkerPane) -> None:
    choose(pane, "Every core")
    pane.set_busy("pin")
    assert not pane.apply.isEnabled()
    pane.set_busy("")
    assert pane.apply.isEnabled() and pane.tuning.start.isEnabled()
    pane.set_working(())
    choose(pane, "Every core")
    assert not pane.apply.isEnabled() and "No model is loaded" in pane.state.text() and not pane.tuning.start.isEnabled()


def test_the_sweep_tells_how_far_it_is_and_what_it_found(qtbot: QtBot, pane: WorkerPane) -> None:
    tuning = pane.tuning
    assert not tuning.best.isEnabled() and tuning.table.isHidden()
    with qtbot.waitSignal(tuning.tune_clicked):
        qtbot.mouseClick(tuning.start, Qt.MouseButton.LeftButton)
    pane.set_busy("tune")
    with qtbot.waitSignal(tuning.stop_clicked):
        qtbot.mouseClick(tuning.start, Qt.MouseButton.LeftButton)
    tuning.show_progress(TuneProgress(RequestId("t"), "decode", 3, 15, 12, 21.25))
    assert tuning.state.text() == "3 / 15  12 threads: 21.2 tokens/s"
    tuning.show_progress(TuneProgress(RequestId("t"), "waiting", 3, 15))
    assert "nobody else needs the model" in tuning.state.text()
    pane.set_busy("")
    rates = (TunedRate(1, 10.0, 0.01, 3), TunedRate(2, 19.0, 0.02, 3))
    tuning.show_result(WorkersTuned(RequestId("t"), rates, (TunedRate(512, 200.0, 0.0, 1),), 2, 512, 4.21, kept=True))
    assert tuning.state.text() == "2 threads in 4.2 s, kept for the next load of this model."
    assert tuning.table.accessibleDescription() == (
        "1 thread: 10.0 tokens/s, ± 1.0 %; 2 threads: 19.0 tokens/s, ± 2.0 %, best; "
        "512 prompt tokens at once: 200.0 tokens/s, ± 0.0 %, best"
    )
    with qtbot.waitSignal(tuning.best_clicked) as told:
        qtbot.mouseClick(tuning.best, Qt.MouseButton.LeftButton)
    assert told.args == [2]
