"""Runs of the doctor: on a thread of their own, one result after the other, and nothing of a run that was given up."""

from __future__ import annotations

import threading

import pytest
from pytestqt.qtbot import QtBot

from app.bridge.ui_thread import UiThread
from app.ops.doctor_ops import DoctorOps
from engine.advice.doctor.check import Check, CheckResult
from engine.advice.doctor.context import Context
from engine.advice.doctor.facts import PeerFacts
from tests.helpers.doctor_rows import BAD, GOOD, SLOW, broken, check


class Told:
    """What an ops told, in order."""

    def __init__(self, ops: DoctorOps) -> None:
        self.events: list[object] = []
        ops.began.connect(lambda n: self.events.append(("began", n)))
        ops.arrived.connect(lambda result, done: self.events.append((result.id, result.status, done)))
        ops.ended.connect(lambda: self.events.append("ended"))


def make(*checks: Check, own: tuple[Check, ...] = ()) -> DoctorOps:
    return DoctorOps(UiThread(), lambda: Context, lambda: own, lambda: checks)


def test_results_come_one_by_one_and_are_kept_in_order(qtbot: QtBot) -> None:
    threads: list[str] = []
    ops = make(check(GOOD, before=lambda: threads.append(threading.current_thread().name)), check(SLOW, SLOW), own=(check(BAD),))
    told = Told(ops)
    with qtbot.waitSignal(ops.ended):
        ops.run()
        assert ops.running
    one, two, three = ("D-CPU-1", "pass", 1), ("D-NUMA-2", "warn", 2), ("D-PCI-1", "fail", 3)
    assert told.events == [("began", 3), one, two, two, three, "ended"]
    assert [result.id for result in ops.results] == ["D-CPU-1", "D-NUMA-2", "D-NUMA-2", "D-PCI-1"]
    assert threads == ["doctor"] and not ops.running
    assert ops.ended_s is not None


def test_a_quick_run_keeps_what_all_checks_found(qtbot: QtBot) -> None:
    ops = make(check(BAD, quick=False), check(GOOD))
    with qtbot.waitSignal(ops.ended):
        ops.run()
    assert [result.id for result in ops.results] == ["D-CPU-1"]
    with qtbot.waitSignal(ops.ended):
        ops.run(all_checks=True)
    with qtbot.waitSignal(ops.ended):
        ops.run()
    assert [result.id for result in ops.results] == ["D-PCI-1", "D-CPU-1"]


@pytest.mark.expects_warnings
def test_a_check_that_fails_itself_is_a_row(qtbot: QtBot) -> None:
    ops = make(broken(), check(GOOD))
    with qtbot.waitSignal(ops.ended):
        ops.run()
    first, second = ops.results
    assert (first.status, second.status) == ("unknown", "pass")
    assert "not for you" in first.why


def test_another_run_takes_the_place_of_one_under_way(qtbot: QtBot) -> None:
    gate, reached = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        gate.wait(30)

    ops = make(check(SLOW, before=wait), check(GOOD))
    told = Told(ops)
    ops.run()
    assert reached.wait(30)
    gate.set()
    with qtbot.waitSignal(ops.ended):
        ops.run()
    qtbot.wait(50)
    after = told.events[len(told.events) - 4 :]
    assert after == [("began", 2), ("D-NUMA-2", "warn", 1), ("D-CPU-1", "pass", 2), "ended"]
    assert told.events.count("ended") == 1


def test_closed_it_tells_nothing(qtbot: QtBot) -> None:
    gate = threading.Event()
    ops = make(check(SLOW, before=lambda: gate.wait(30) and None))
    told = Told(ops)
    ops.run()
    ops.close()
    gate.set()
    qtbot.wait(50)
    assert "ended" not in told.events and not ops.results


def test_runs_of_all_checks_may_try_copies_between_cards(qtbot: QtBot) -> None:
    told: list[object] = []

    class Tried:
        def peers(self) -> PeerFacts:
            return PeerFacts(1, ("GPU 0 to GPU 1: nothing arrived.",))

        def close(self) -> None:
            told.append("closed")

    def run(context: Context) -> CheckResult:
        told.append(None if context.peers is None else context.peers())
        return GOOD

    ops = DoctorOps(UiThread(), lambda: Context, tuple, lambda: (Check("D-CPU-1", "", "", run),), Tried)  # type: ignore[arg-type]
    with qtbot.waitSignal(ops.ended):
        ops.run()
    with qtbot.waitSignal(ops.ended):
        ops.run(all_checks=True)
    assert told == [None, PeerFacts(1, ("GPU 0 to GPU 1: nothing arrived.",)), "closed"]
