"""What the Monitors page costs: processor time of the window's thread a reading, and none while nobody can see it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.shots import monitors_machine as machine
from app.shots.monitors_stage import MonitorsStage
from tests.helpers.beside import BESIDE

pytestmark = pytest.mark.usefixtures("themed")
MOST_S = 0.02
"""Of a second between two readings: 2 % of a core."""
N_READINGS, N_TRIES = 20, 3


@pytest.fixture
def stage(qtbot: QtBot) -> Iterator[MonitorsStage]:
    """Four cards and 128 cores of two threads, shown in a window, with half an hour behind them."""
    built = machine.topology()
    made = MonitorsStage(built, machine.facts(built))
    window = QWidget()
    qtbot.addWidget(window)
    window.resize(1440, 900)
    made.page.setParent(window)
    made.page.resize(1368, 900)
    window.show()
    cards = [machine.snapshot(float(i), built) for i in range(12)]
    works = [machine.sample(float(i)) for i in range(12)]
    made.remember(lambda at: cards[int(at) % 12], lambda at: works[int(at) % 12], seconds=1700)
    yield made
    made.close()


class Paints(QObject):
    """Counts what is painted."""

    n = 0

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.n += event.type() == QEvent.Type.Paint
        return False


def seconds_a_reading(stage: MonitorsStage, n: int) -> float:
    """Of this thread, from the event of a reading until all is painted."""
    readings = [(machine.snapshot(5000.0 + i, stage.machine), machine.sample(5000.0 + i)) for i in range(n)]
    spent = 0.0
    for i, (snapshot, sample) in enumerate(readings):
        now = time.monotonic() + i + 1
        began = time.thread_time()
        stage.tell(replace(snapshot, time_s=now), sample)
        for _ in range(4):
            QApplication.sendPostedEvents()
            QApplication.processEvents()
        spent += time.thread_time() - began
    return spent / n


@pytest.mark.parametrize("span", ["60", "300", "1800"])
def test_a_reading_of_a_large_machine_costs_two_percent_of_a_core_at_most(stage: MonitorsStage, span: str) -> None:
    stage.settings.set("monitors.span", span)
    paints = Paints()
    for card in (*stage.page.board.cards(), *(one.grid for one in stage.page.board.nodes)):
        card.installEventFilter(paints)
    best = min(seconds_a_reading(stage, N_READINGS) for _ in range(N_TRIES))
    assert paints.n >= N_READINGS * N_TRIES * len(stage.page.board.gpus)
    assert best <= MOST_S * BESIDE


@pytest.mark.parametrize("way", ["another page", "minimised", "hidden"])
def test_it_rests_while_nobody_can_see_it(stage: MonitorsStage, way: str) -> None:
    window = stage.page.window()
    if way == "another page":
        stage.controller.shown(False)
        stage.page.hide()
    elif way == "minimised":
        window.setWindowState(Qt.WindowState.WindowMinimized)
    else:
        window.hide()
    QApplication.processEvents()
    assert not stage.controller.is_seen
    paints = Paints()
    for card in stage.page.board.cards():
        card.installEventFilter(paints)
    before = stage.page.board.tiles["decode"].figures
    stage.tell(replace(machine.snapshot(9000.0, stage.machine), time_s=time.monotonic() + 9), machine.sample(9000.0))
    QApplication.processEvents()
    assert paints.n == 0
    assert stage.page.board.tiles["decode"].figures is before
    stage.monitors.set_watching("stage", 0.0)
    assert stage.monitors.period_s == 0.0
