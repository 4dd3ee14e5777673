"""The window, the real engine and sensors that fail: gauges say why within three seconds, the window lives, no request fails.

The driver is played by a library. Three kills of the sensor process; fifty with LAYERDECK_LONG=1.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
import pytest
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.main import Running, build
from app.paths import find_paths
from engine.api.values import GpuSample, SamplingParams, why
from engine.hardware import gpu_rounds
from engine.service import handlers
from engine.service.sensor_feed import SensorFeed
from tests.helpers.models import included_model
from tests.helpers.nvml import Cards
from tests.helpers.nvml import build as build_library

pytestmark = [
    pytest.mark.skipif(included_model() is None, reason="the included model is not installed"),
    pytest.mark.timeout(600),
]

SHORT = SamplingParams(temperature=0.0, max_tokens=12)
TOLD_S = 3.0
LOOK_MS = 20
STILL_S = 2.0
"""A window that waited for a driver would stand still for five."""
N_KILLS = 50 if os.environ.get("LAYERDECK_LONG") else 3


@dataclass
class Heart:
    """Beats on the window's thread; `longest_s` between two beats."""

    longest_s: float = 0.0
    last: float = field(default_factory=time.monotonic)

    def beat(self) -> None:
        now = time.monotonic()
        self.longest_s, self.last = max(self.longest_s, now - self.last), now


@dataclass
class Stage:
    qtbot: QtBot
    running: Running
    cards: Cards
    heart: Heart

    def gpus(self) -> tuple[GpuSample, ...]:
        snapshot = self.running.parts.monitors.now.snapshot
        return () if snapshot is None else snapshot.gpus

    def wait(self, met: Callable[[], bool], within_s: float) -> None:
        """Looks are counted, not time: a machine that stands still has no deadline."""
        for _ in range(int(1000 * within_s / LOOK_MS)):
            if met():
                return
            self.qtbot.wait(LOOK_MS)
        raise AssertionError([(one.key, one.state, one.problem) for one in self.gpus()])

    def healthy(self) -> bool:
        return len(self.gpus()) == 4 and all(one.state == "ok" for one in self.gpus())

    def ask(self) -> None:
        """One question, which must be answered whatever the sensors do."""
        chats, controller = self.running.parts.chats, self.running.window.controller
        controller.ask("What is the sea?", SHORT)
        self.wait(lambda: bool(chats.streaming_chats()), 20)
        self.wait(lambda: not chats.streaming_chats(), 60)
        assert controller.chat_id is not None
        assert self.running.parts.store.messages(controller.chat_id)[-1].status == "done"

    def said(self, card: int) -> str:
        """What the panel beside the chat says of a card."""
        return self.running.window.page.side_panel._gpus[card].toolTip()


@pytest.fixture
def stage(
    qtbot: QtBot, qapp: QApplication, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    cards = Cards(tmp_path, build_library(tmp_path_factory.mktemp("nvml")), monkeypatch)
    monkeypatch.setattr(handlers, "SensorFeed", partial(SensorFeed, root=cards.root))
    monkeypatch.setattr("app.windows.crash_dialog.CrashReporter.install", lambda self: None)
    monkeypatch.setenv("LAYERDECK_GPU", "none")
    paths = find_paths()
    paths.ensure()
    running = build(qapp, paths)
    running.window.resize(1440, 900)
    heart, timer = Heart(), QTimer()
    timer.timeout.connect(heart.beat)
    made = Stage(qtbot, running, cards, heart)
    yield made
    timer.stop()
    running.shut_down()
    running.window.deleteLater()


def begin(stage: Stage) -> None:
    """The window is shown and a model is loaded."""
    stage.running.window.show()
    stage.running.window.load(str(included_model()))
    stage.wait(lambda: stage.running.parts.bridge.state.kind == "ready", 60)
    timer = QTimer(stage.running.window)
    timer.timeout.connect(stage.heart.beat)
    stage.heart.last = time.monotonic()
    timer.start(LOOK_MS)


def test_healthy_cards_are_shown_beside_the_chat(stage: Stage) -> None:
    begin(stage)
    stage.wait(stage.healthy, 30)
    stage.ask()
    panel = stage.running.window.page.side_panel
    assert [card.figures.temperature for card in panel._gpus if card.figures is not None] == ["54 °C"] * 4
    assert stage.running.parts.monitors.healths[stage.gpus()[0].key].level == "ok"
    assert stage.heart.longest_s < STILL_S


@pytest.mark.parametrize(
    ("line", "state", "words"),
    [
        ("lost 1", "lost", "fell off the bus"),
        ("unknown 1", "lost", "fell off the bus"),
        ("hang 1 5000", "silent", ""),
        ("crash 1", "silent", ""),
    ],
)
def test_a_card_that_fails_says_why_and_nothing_else_does(stage: Stage, line: str, state: str, words: str) -> None:
    begin(stage)
    stage.wait(stage.healthy, 30)
    stage.cards.become("gpus 4", line)
    stage.wait(lambda: stage.gpus()[1].state == state, TOLD_S)
    stage.wait(lambda: words in stage.said(1) and bool(stage.said(1)), 1.0)
    assert stage.running.parts.monitors.healths[stage.gpus()[1].key].level == ("lost" if state == "lost" else "unknown")
    stage.ask()
    assert stage.heart.longest_s < STILL_S
    # The others go on.
    stage.wait(lambda: sum(one.state == "ok" for one in stage.gpus()) == 3, 30)


def test_what_a_card_does_not_offer_is_said(stage: Stage) -> None:
    stage.cards.become("gpus 4", "fails nvmlDeviceGetPowerUsage", "fails nvmlDeviceGetTemperature")
    begin(stage)
    stage.wait(stage.healthy, 30)
    one = stage.gpus()[0]
    assert why(one.missing, "power_w") == "this card does not offer it"
    stage.wait(lambda: "does not offer it" in stage.said(0), TOLD_S)
    assert stage.running.parts.monitors.healths[one.key].level == "unknown"
    stage.ask()
    assert stage.heart.longest_s < STILL_S


def test_a_driver_that_was_updated_is_said(stage: Stage) -> None:
    stage.cards.become("init 18")
    begin(stage)
    now = stage.running.parts.monitors
    stage.wait(lambda: now.now.snapshot is not None and "was updated" in now.now.snapshot.gpu_problem, 20)
    stage.ask()
    assert stage.heart.longest_s < STILL_S


def sensor_processes() -> list[psutil.Process]:
    """Children that watch cards."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if any("sensor_worker" in part for part in child.cmdline()):
                found.append(child)
        except psutil.Error:
            continue
    return found


def test_the_sensor_process_may_be_killed_at_any_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_rounds, "RESTART_S", (0.1,))
    begin(stage)
    stage.wait(stage.healthy, 30)
    for n in range(N_KILLS):
        (process,) = sensor_processes()
        process.send_signal(signal.SIGKILL)
        stage.wait(lambda pid=process.pid: [one.pid for one in sensor_processes()] not in ([pid], []) and stage.healthy(), 30)  # type: ignore[misc]
        if n % 10 == 0:
            stage.ask()
    assert stage.heart.longest_s < STILL_S
