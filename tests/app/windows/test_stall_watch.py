"""A stall is said once, and only while something should be moving."""

from __future__ import annotations

from pytestqt.qtbot import QtBot

from app.bridge.engine_bridge import EngineBridge
from app.windows.stall_watch import StallWatch
from engine.api.commands import Generate, LoadModel
from tests.helpers.fake_engine import FakeEngine, Prefill, Stall, Tokens


def test_stalls_are_told_with_the_phase(qtbot: QtBot) -> None:
    engine = FakeEngine(answer=(Prefill(), Tokens(("a",)), Stall(60)))
    bridge = EngineBridge(engine)
    watch = StallWatch(bridge, stall_ms=40)
    told: list[str] = []
    watch.stalled.connect(told.append)
    bridge.submit(LoadModel(bridge.new_id(), "/m.gguf"))
    qtbot.waitUntil(lambda: bridge.state.kind == "ready")
    qtbot.wait(100)
    assert told == []
    request = bridge.new_id()
    bridge.submit(Generate(request, prompt="x"))
    qtbot.waitUntil(lambda: bool(told))
    qtbot.wait(100)
    assert len(told) == 1
    assert told[0].startswith("No new words")
    bridge.cancel(request)
    qtbot.waitUntil(lambda: bridge.state.kind == "ready")
    qtbot.wait(100)
    assert len(told) == 1
    bridge.close()
