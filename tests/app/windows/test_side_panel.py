"""The panel beside the chat in the window: it follows readings while seen, rests while hidden, leads to the Monitors page."""

from __future__ import annotations

import time
from typing import Any

from engine.api.events import Sensors
from engine.api.values import CpuSample, GpuSample, HardwareSnapshot, RequestId
from tests.app.windows.conftest import Stage
from tests.helpers.fake_engine import Prefill, Stall, Tokens

CARD = GpuSample("GPU-a", "01:00.0", "RTX 3090", "nvidia", temperature_c=83.0, power_w=300.0)


def read(stage: Stage, seconds: float, **more: Any) -> None:
    at = time.monotonic() + seconds
    cpu = CpuSample("EPYC", (50.0,), 60.0)
    stage.engine.tell(Sensors(RequestId("s"), HardwareSnapshot(at, cpu, 8, 16, 1, gpus=(CARD,), **more)))
    monitors = stage.parts.monitors
    stage.qtbot.waitUntil(lambda: monitors.now.snapshot is not None and monitors.now.snapshot.time_s == at)


def test_it_follows_readings_and_pins(stage: Stage) -> None:
    panel = stage.window.page.side_panel
    read(stage, 10)
    assert len(panel._gpus) == 1
    figures = panel._gpus[0].figures
    assert figures is not None
    assert (figures.temperature, figures.tone, figures.power) == ("83 °C", "warn", "300 W")
    stage.parts.settings.set("monitors.pinned", ("gpu/GPU-a/power_w",))
    assert [(one.label, one.value) for one in panel._pins.values] == [("GPU 0 power", "300 W")]
    stage.parts.settings.set("monitors.pinned", ())
    assert not panel._pins.isVisible()


def test_it_rests_while_hidden(stage: Stage) -> None:
    panel = stage.window.page.side_panel
    read(stage, 10)
    stage.parts.settings.set("chat.side_panel", False)
    # Somebody else watches; the panel makes nothing of it.
    stage.parts.monitors.set_watching("other", 1.0)
    before = panel._gpus[0].figures
    read(stage, 20)
    assert panel._gpus[0].figures is before
    assert panel._pending is None
    stage.parts.settings.set("chat.side_panel", True)
    stage.qtbot.waitUntil(lambda: panel._gpus[0].figures is not None)


def test_the_link_and_a_message_lead_to_the_monitors_page(stage: Stage) -> None:
    window = stage.window
    assert "monitors" in window.doors
    window.page.side_panel._more.click()
    page = window.doors["monitors"].controller().view
    assert window._stack.currentWidget() is page
    window.show_chat()
    stage.load()
    stage.engine.answers = [(Prefill(), Tokens(("a",)), Stall(60))]
    stage.send("q", wait=False)
    stage.qtbot.waitUntil(lambda: stage.parts.bridge.state.kind == "generating")
    read(stage, 30)
    stage.controller.stop()
    stage.settle()
    chat_id = stage.controller.chat_id
    assert chat_id is not None
    message_id = stage.parts.store.messages(chat_id)[-1].id
    stage.qtbot.waitUntil(lambda: stage.parts.store.telemetry(message_id) is not None)
    window.page.transcript.telemetry_requested.emit(message_id)
    assert window._stack.currentWidget() is page
    replayed = stage.parts.monitors.replayed
    assert replayed is not None
    assert replayed.message_id == message_id
