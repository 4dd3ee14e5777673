"""The Monitors page over what sensors tell: pausing, recording, pinning, spans, silence, the keyboard, and what is read aloud."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.shots import monitors_machine as machine
from app.shots.monitors_stage import MonitorsStage
from app.telemetry.shown import Replayed
from app.windows.monitors_controller import series_of
from engine.api.commands import WatchSensors
from tests.app.windows.conftest import Stage

pytestmark = pytest.mark.usefixtures("themed")


@pytest.fixture
def small(qtbot: QtBot) -> Iterator[MonitorsStage]:
    """The page in a window, after twenty seconds at work."""
    built = machine.topology()
    made = MonitorsStage(built, machine.facts(built))
    window = QWidget()
    qtbot.addWidget(window)
    window.resize(1368, 900)
    made.page.setParent(window)
    made.page.resize(1368, 900)
    window.show()
    made.remember(lambda at: machine.snapshot(at, built), machine.sample, seconds=20)
    yield made
    made.close()


def read(stage: MonitorsStage, at: float, **change: object) -> None:
    snapshot = replace(machine.snapshot(at, stage.machine), time_s=time.monotonic() + at, **change)  # type: ignore[arg-type]
    stage.tell(snapshot, machine.sample(at))


def test_the_window_opens_the_page_and_reads_only_while_it_is_shown(stage: Stage) -> None:
    window, engine = stage.window, stage.engine
    QTest.keyClick(window, Qt.Key.Key_3, Qt.KeyboardModifier.ControlModifier)
    assert window._rail._items["monitors"].isChecked()
    stage.qtbot.waitUntil(lambda: any(one.details for one in engine.sent(WatchSensors)))  # type: ignore[union-attr]
    window.show_chat()
    stage.qtbot.waitUntil(lambda: not engine.sent(WatchSensors)[-1].details)  # type: ignore[union-attr]
    window.show_page("monitors")
    stage.qtbot.waitUntil(lambda: engine.sent(WatchSensors)[-1].details)  # type: ignore[union-attr]
    window.show_welcome()
    stage.qtbot.waitUntil(lambda: not engine.sent(WatchSensors)[-1].details)  # type: ignore[union-attr]


def test_every_card_has_a_name_and_says_its_values(small: MonitorsStage) -> None:
    cards = list(small.page.board.cards())
    assert len(cards) == 6 + 4 + 2 + 1
    for card in cards:
        card._describe.flush()
        assert card.accessibleName()
        assert all(reading.sentence in card.accessibleDescription() for reading in card.readings)
        assert len(card.value_rects()) >= len(card.readings)
        assert all(card.rect().adjusted(-1, -1, 1, 1).contains(rect.toAlignedRect()) for rect in card.value_rects())


def test_descriptions_change_at_most_every_five_seconds(small: MonitorsStage) -> None:
    card = small.page.board.gpus[0]
    before = card.accessibleDescription()
    for at in range(30, 34):
        read(small, float(at))
    assert card.accessibleDescription() == before
    card._describe.flush()
    assert card.accessibleDescription() != before


def test_space_lets_the_page_stand_still(small: MonitorsStage) -> None:
    page = small.page
    QTest.keyClick(page, Qt.Key.Key_Space)
    assert small.monitors.is_paused
    assert page.mode.text.startswith("Paused at ")
    before = page.board.tiles["power"].figures
    read(small, 40.0)
    assert page.board.tiles["power"].figures == before
    page.mode.button.click()
    assert not small.monitors.is_paused
    assert page.mode.text == ""
    assert page.board.tiles["power"].figures != before


def test_r_records_and_says_where(small: MonitorsStage, qtbot: QtBot) -> None:
    heard: list[str] = []
    small.controller.notice.connect(heard.append)
    QTest.keyClick(small.page, Qt.Key.Key_R)
    path = small.monitors.recording_path
    assert path
    assert small.page.header.record.text().startswith("Stop 0:0")
    read(small, 50.0)
    small.page.header.record.click()
    assert heard == [f"Recorded to {path}"]
    qtbot.waitUntil(lambda: Path(path).is_file() and len(Path(path).read_text().splitlines()) >= 2)
    assert small.page.header.record.text() == "Record"


def test_a_click_pins_a_value_and_the_settings_keep_it(small: MonitorsStage) -> None:
    card = small.page.board.gpus[2]
    spot = card.value_rects()[4].center().toPoint()
    QTest.mouseClick(card, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, spot)
    assert small.settings.values.monitors.pinned == ("gpu/GPU-2/power_w",)
    assert "take it out" in card.tip(QPointF(spot))
    QTest.mouseClick(card, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, spot)
    assert small.settings.values.monitors.pinned == ()


def test_the_keyboard_walks_through_values_and_pins(small: MonitorsStage) -> None:
    card = small.page.board.nodes[0]
    card.setFocus(Qt.FocusReason.TabFocusReason)
    assert card.focused_value is None
    for key in (Qt.Key.Key_Left, Qt.Key.Key_Right, Qt.Key.Key_Right):
        QApplication.sendEvent(card, QKeyEvent(QEvent.Type.KeyPress, key, Qt.KeyboardModifier.NoModifier))
    assert card.focused_value == 1
    assert card.accessibleDescription() == card.readings[1].sentence
    QApplication.sendEvent(card, QKeyEvent(QEvent.Type.KeyPress, Qt.Key.Key_Return, Qt.KeyboardModifier.NoModifier))
    assert small.settings.values.monitors.pinned == ("node/0/frequency_mhz",)


def test_the_cores_of_a_node_open_the_window_of_workers(small: MonitorsStage, qtbot: QtBot) -> None:
    board = small.page.board
    card = board.nodes[1]
    spot = card.grid.pos() + QPoint(6, 6)
    assert "Click: choose the cores that work\nCtrl+click: pin" in card.tip(QPointF(spot))
    between = card.tip(QPointF(card.grid.geometry().topLeft() - QPoint(1, 1)))
    assert between.endswith("Ctrl+click: pin their use beside the chat") and "pin it" not in between
    with qtbot.waitSignal(board.workers_requested) as clicked:
        QTest.mouseClick(card, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, spot)
    assert clicked.args == [1] and small.settings.values.monitors.pinned == ()
    card.setFocus(Qt.FocusReason.TabFocusReason)
    for _ in range(3):
        QTest.keyClick(card, Qt.Key.Key_Right)
    with qtbot.waitSignal(board.workers_requested):
        QTest.keyClick(card, Qt.Key.Key_Return)
    QTest.mouseClick(card, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.ControlModifier, spot)
    assert small.settings.values.monitors.pinned == (card.readings[2].key,)
    assert "Ctrl+click: take their use out" in card.tip(QPointF(spot))


def test_tooltips_say_what_stands_there(small: MonitorsStage) -> None:
    card = small.page.board.nodes[0]
    cell = card.grid.pos() + QPoint(6, 6)
    assert card.tip(QPointF(cell)).startswith("Core 0\nProcessor 0: ")
    assert "A worker of the engine is pinned to it" in card.tip(QPointF(cell))
    trace = small.page.board.trace
    lane = QPointF(trace._x(trace.figures.lanes[4].stretches[3].start_ms) + 1, 20 + 4.5 * trace._lane_height())
    assert trace.tip(lane).startswith("NUMA 0\nExperts, layer ")


def test_silence_of_all_sensors_is_said(small: MonitorsStage) -> None:
    small.controller._last_reading_s -= 12
    small.controller._show_alarm()
    assert small.page.alarm.text == "The sensors have not answered for 12 s; what is shown is of then."
    read(small, 60.0)
    assert small.page.alarm.text == ""


def test_a_hot_card_is_said_across_the_page(small: MonitorsStage) -> None:
    read(small, 61.0, gpus=machine.hot(machine.cards(61.0)))
    assert small.page.alarm.text.startswith("GPU 2, RTX 3090: 91 °C")


def test_cards_come_and_go(small: MonitorsStage) -> None:
    read(small, 62.0, gpus=(), gpu_problem="the driver is not loaded")
    assert small.page.board.gpus == []
    assert small.page.board._gpu_note == "the driver is not loaded"
    read(small, 63.0)
    assert len(small.page.board.gpus) == 4


def test_another_span_and_period_are_kept(small: MonitorsStage) -> None:
    small.page.header.span_chosen.emit("60")
    assert small.settings.values.monitors.span == "60"
    series = small.page.board.tiles["decode"].plot.series
    assert series is not None
    assert series.span_s == pytest.approx(60.0)
    small.settings.set("monitors.period_s", 2.0)
    assert small.page.header.period.text() == "Every 2 s"
    small.monitors.set_watching("stage", 0.0)
    assert small.monitors.period_s == 2.0


def test_gaps_are_not_drawn_over(small: MonitorsStage) -> None:
    line = small.monitors.now.timeline
    end = line.newest_s
    assert end is not None
    line.push(replace(machine.snapshot(99.0, small.machine), time_s=end + 20), machine.sample(99.0))
    plot = small.page.board.tiles["decode"].plot
    plot.set_series(series_of(line, "engine/decode_tok_s", 60.0, 500))
    assert len(plot.runs()) == 2


def test_a_message_that_is_shown_again_is_named(small: MonitorsStage) -> None:
    from datetime import datetime

    small.monitors._frozen = small.monitors.now
    small.monitors.replayed = Replayed(7, datetime(2026, 3, 4, 14, 2), "SmolLM2", 42.0)
    small.monitors.replay_changed.emit()
    assert small.page.mode.text == "As it was while SmolLM2 wrote an answer at 2026-03-04 14:02 (42 s)"
    small.page.mode.button.click()
    assert small.page.mode.text == ""


def test_the_page_has_a_place_for_what_the_machine_says(small: MonitorsStage) -> None:
    strip = QLabel("The fans stand still")
    small.page.set_strip(strip)
    small.page.fit_notices()
    QApplication.sendPostedEvents()
    QApplication.processEvents()
    assert strip.isVisible()
    assert strip.y() >= small.page.header.height()
    assert strip.y() < small.page.board.mapTo(small.page, QPoint(0, 0)).y()
