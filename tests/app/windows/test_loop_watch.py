"""The longest wait of the window: how long, whose work, and where."""

from __future__ import annotations

import threading
import time

from pytestqt.qtbot import QtBot

from app.windows.loop_watch import LATE_S, LoopWatch


def busy_for(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_a_long_wait_is_told_with_where_it_was(qtbot: QtBot) -> None:
    watch = LoopWatch(start_s=0.0)
    watch.watch(True)
    qtbot.wait(150)
    busy_for(1.0)
    qtbot.wait(300)
    watch.close()
    worst = watch.worst
    assert worst.seconds >= 0.85
    assert any(line.endswith(" busy_for") and line.startswith("tests/") for line in worst.stack), worst.stack
    assert not any(line.startswith("/") for line in worst.stack)


def test_sleeping_is_not_the_windows_work(qtbot: QtBot) -> None:
    watch = LoopWatch(start_s=0.0)
    watch.watch(True)
    time.sleep(0.6)
    qtbot.waitUntil(lambda: watch.worst.seconds > LATE_S)
    watch.close()
    assert watch.worst.starved


def test_nothing_runs_while_it_does_not_watch(qtbot: QtBot) -> None:
    watch = LoopWatch(start_s=0.0)
    watch.watch(True)
    watch.watch(True)
    assert sum(thread.name == "loop-watch" for thread in threading.enumerate()) == 1
    watch.watch(False)
    assert not any(thread.name == "loop-watch" for thread in threading.enumerate())
    before = watch.worst
    time.sleep(0.3)
    qtbot.wait(150)
    assert watch.worst == before


def test_the_first_moments_of_a_window_do_not_count(qtbot: QtBot) -> None:
    watch = LoopWatch(start_s=5.0)
    watch.watch(True)
    busy_for(0.5)
    qtbot.wait(150)
    watch.close()
    assert watch.worst.seconds == 0


def test_what_a_late_call_holds_is_not_held_longer(qtbot: QtBot) -> None:
    """A painter that outlives the painting of its widget ends the process."""
    watch = LoopWatch(start_s=0.0)
    gone: list[float] = []

    def paint() -> None:
        painter = _Painter(gone)
        busy_for(0.8)
        assert painter is not None

    watch.watch(True)
    for _ in range(3):
        qtbot.wait(150)
        before = len(gone)
        paint()
        assert len(gone) == before + 1
    watch.close()
    assert watch.worst.stack


class _Painter:
    def __init__(self, gone: list[float]) -> None:
        self._gone = gone

    def __del__(self) -> None:
        self._gone.append(time.monotonic())
