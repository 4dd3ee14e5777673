"""Measuring this machine beside the window: it ends in a sentence, can be stopped, and is refused while a model works."""

from __future__ import annotations

import threading

import pytest
from pytestqt.qtbot import QtBot

from app.bridge.engine_bridge import EngineBridge
from app.bridge.ui_thread import UiThread
from app.ops.calibrate_ops import Ask, CalibrateOps
from engine.api.commands import Generate
from engine.api.measure_worker import WORKER
from engine.errors import HelperDied
from engine.spawn import HelperProcess
from tests.helpers.fake_engine import FakeEngine, Stall


def make(ask: Ask | None, bridge: EngineBridge | None = None) -> CalibrateOps:
    return CalibrateOps(bridge or EngineBridge(FakeEngine()), UiThread(), ask)


def test_it_ends_in_a_sentence_with_what_the_memory_gave(qtbot: QtBot) -> None:
    ops = make(lambda _helper: {"node_gbps": [312.4, 298.0], "n_gpus": 0})
    with qtbot.waitSignal(ops.ended) as told:
        ops.start()
        assert ops.running
        ops.start()
    assert told.args == ["Memory reads 312 GB/s, 298 GB/s. Models that are planned from now on are estimated with it."]
    assert not ops.running and ops.seconds == 0


@pytest.mark.parametrize("answer", [{"error": "the disk is full"}, HelperDied("the disk is full")])
def test_what_goes_wrong_is_said(qtbot: QtBot, answer: object) -> None:
    def ask(_helper: HelperProcess) -> dict[str, object]:
        if isinstance(answer, HelperDied):
            raise answer
        assert isinstance(answer, dict)
        return answer

    ops = make(ask)
    with qtbot.waitSignal(ops.failed) as told:
        ops.start()
    assert told.args == ["The machine could not be measured: the disk is full"]


def test_it_is_refused_while_a_model_works(qtbot: QtBot) -> None:
    bridge = EngineBridge(FakeEngine(answer=(Stall(60),)))
    ops = make(None, bridge)
    bridge.submit(Generate(bridge.new_id(), prompt="x"))
    with qtbot.waitSignal(ops.failed) as told:
        ops.start()
    assert "while a model works" in told.args[0] and not ops.running
    bridge.close()


def test_stopped_it_says_nothing(qtbot: QtBot) -> None:
    """The helper is a real process, which is killed."""
    started = threading.Event()

    def ask(helper: HelperProcess) -> dict[str, object]:
        helper.start()
        started.set()
        return helper.request({}, 60.0)

    ops = make(ask)
    said: list[str] = []
    ops.ended.connect(said.append)
    ops.failed.connect(said.append)
    ops.start()
    assert started.wait(60)
    ops.stop()
    qtbot.waitUntil(lambda: not ops.running)
    assert said == []
    assert WORKER == "engine.api.measure_worker"
