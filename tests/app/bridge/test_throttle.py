"""Throttle and UiThread."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest
from pytestqt.exceptions import capture_exceptions
from pytestqt.qtbot import QtBot

from app.bridge.throttle import Throttle
from app.bridge.ui_thread import UiThread
from app.errors import StoreError, UserFacingError


def test_first_call_runs_now_then_only_the_newest(qtbot: QtBot) -> None:
    calls: list[int] = []
    throttle = Throttle(20, calls.append)
    for i in range(10):
        throttle(i)
    assert calls == [0]
    qtbot.waitUntil(lambda: calls == [0, 9])
    qtbot.wait(50)
    throttle(11)
    assert calls == [0, 9, 11]
    throttle(12)
    throttle.flush()
    assert calls[-1] == 12
    throttle(13)
    throttle.cancel()
    qtbot.wait(50)
    assert calls[-1] == 12


def test_results_of_other_threads_arrive_here(qtbot: QtBot) -> None:
    ui = UiThread()
    seen: list[object] = []
    future: Future[int] = Future()
    ui.deliver(future, lambda value: seen.append((value, threading.current_thread().name)), seen.append)
    threading.Thread(target=lambda: future.set_result(5)).start()
    qtbot.waitUntil(lambda: bool(seen))
    assert seen == [(5, "MainThread")]
    failed: Future[int] = Future()
    ui.deliver(failed, seen.append, seen.append)
    failed.set_exception(StoreError("full"))
    qtbot.waitUntil(lambda: len(seen) == 2)
    assert isinstance(seen[1], UserFacingError)


def test_a_bug_in_a_job_is_raised_on_the_ui_thread(qtbot: QtBot) -> None:
    ui = UiThread()
    future: Future[int] = Future()
    ui.deliver(future, lambda value: None, lambda error: pytest.fail("not an error for people"))
    with capture_exceptions() as caught:
        future.set_exception(ZeroDivisionError())
        qtbot.wait(20)
    assert [kind for kind, *_ in caught] == [ZeroDivisionError]


def test_a_closed_one_calls_nothing(qtbot: QtBot) -> None:
    ui = UiThread()
    calls: list[int] = []
    ui.call(lambda: calls.append(1))
    ui.close()
    ui.call(lambda: calls.append(2))
    qtbot.wait(20)
    assert calls == []
