"""The short monitor beside the chat: what it says of cards, nodes and pinned values, with reasons where there is no value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from app.monitors.side_figures import NOT_KNOWN, label_of, pinned_values, side_gpus, side_nodes, value_text
from app.monitors.side_panel import SideFigures, SidePanel
from app.shots import script
from app.telemetry import keys
from app.telemetry.shown import Shown
from app.telemetry.timeline import Timeline
from engine.api.values import (
    Core,
    CoreSample,
    CpuSample,
    DeviceWork,
    EngineSample,
    GpuSample,
    HardwareSnapshot,
    HoldingInfo,
    NodeSample,
)
from tests.helpers.fake_engine import model_info

GB = 10**9
CARD = GpuSample(
    "GPU-a", "01:00.0", "NVIDIA GeForce RTX 4090", "nvidia", temperature_c=58.0, memory_total_bytes=24 * GB,
    memory_used_bytes=18 * GB, busy_percent=99.0, power_w=141.0,
)  # fmt: skip


def shown(gpus: tuple[GpuSample, ...] = (CARD,), devices: tuple[DeviceWork, ...] = (), **more: Any) -> Shown:
    cpu = CpuSample("AMD EPYC 7543 32-Core Processor", (10.0, 30.0), 61.0)
    snapshot = HardwareSnapshot(1.0, cpu, 8 * GB, 16 * GB, GB, gpus=gpus, **more)
    work = EngineSample(1.0, 1.0, devices=devices) if devices else None
    timeline = Timeline(node_of_core={0: 0, 1: 1})
    timeline.push(snapshot, work)
    return Shown(timeline, snapshot, work).judged(0)


def test_a_card_that_works_for_us() -> None:
    model = replace(model_info("/m.gguf"), holdings=(HoldingInfo("gpu0", "weights", 9 * GB), HoldingInfo("gpu0", "kv", 3 * GB)))
    (card,) = side_gpus(shown(devices=(DeviceWork("gpu0", 34.0, card="GPU-a"),)), model)
    assert (card.title, card.temperature, card.working, card.power) == ("GPU 0 · RTX 4090", "58 °C", 34.0, "141 W")
    assert card.memory == "18 / 24 GB"
    assert card.segments == ((0.375, "attn"), (0.125, "kv"), (0.25, "text3"))
    assert card.sentence == ""


def test_cards_in_trouble_say_why() -> None:
    hot = replace(CARD, temperature_c=83.0)
    lost = replace(
        CARD, key="b", state="lost", problem="it fell off the bus", temperature_c=None, memory_used_bytes=None, busy_percent=50.0
    )
    bare = replace(CARD, key="c", power_w=None, missing=(("power_w", "this card does not offer it"),))
    first, second, third = side_gpus(shown((hot, lost, bare)), None)
    assert (first.tone, "83 °C" in first.sentence) == ("warn", True)
    assert (second.tone, second.temperature, second.memory, second.working) == ("err", NOT_KNOWN, NOT_KNOWN, None)
    assert "fell off the bus" in second.sentence
    assert (third.power, third.sentence) == ("", "Power: this card does not offer it")


def test_one_node_is_the_processor_and_more_are_nodes() -> None:
    (alone,) = side_nodes(shown(), None)
    assert (alone.title, alone.use, alone.memory) == ("AMD EPYC 7543 32-Core Processor", "20 %", "8.0 / 16 GB")
    nodes = (NodeSample(0, 8 * GB, used_bytes=5 * GB), NodeSample(1, 8 * GB, missing=(("used_bytes", "not told here"),)))
    cores = (CoreSample(0, (0,), (10.0,), temperature_c=50.0), CoreSample(1, (1,), (30.0,)))
    topology: Any = type("T", (), {"cores": (Core(0, (0,), 0, 0, 0), Core(1, (1,), 0, 1, 1))})()
    state = shown(nodes=nodes, cores=cores, devices=(DeviceWork("numa0", 70.0, read_bytes_per_s=172e9),))
    first, second = side_nodes(state, topology)
    assert (first.title, first.loads, first.read, first.memory) == ("NUMA 0 · EPYC 7543", (10.0,), "172 GB/s", "5.0 / 8.0 GB")
    assert first.temperature == "50 °C"
    assert (second.loads, second.read, second.memory, second.sentence) == ((30.0,), "", NOT_KNOWN, "not told here")


def test_pinned_values() -> None:
    wanted = (
        keys.power(),
        keys.gpu("GPU-a", "power_w"),
        keys.device("numa0", "read_bytes_per_s"),
        keys.decode(),
        "gpu/gone/power_w",
    )
    found = pinned_values(shown(devices=(DeviceWork("numa0", 70.0, read_bytes_per_s=172e9),)), wanted)
    assert [(one.label, one.value) for one in found] == [
        ("Power", "141 W"),
        ("GPU 0 power", "141 W"),
        ("NUMA 0 read", "172 GB/s"),
        ("Decode", NOT_KNOWN),
        ("GPU gone power", NOT_KNOWN),
    ]
    assert len(pinned_values(shown(), [keys.power()] * 50)) == 8
    assert label_of(keys.vram_used(), {}) == "VRAM"
    assert label_of(keys.node(1, "use_percent"), {}) == "NUMA 1 use"
    assert value_text(keys.first_token(), 2.94) == "2.9 s"


@pytest.mark.usefixtures("themed")
def test_the_panel_follows_what_there_is(qtbot: QtBot) -> None:
    panel = SidePanel()
    qtbot.addWidget(panel)
    panel.resize(300, 700)
    panel.set_more_offered(True)
    panel.show()
    panel.set_figures(script.side_figures())
    assert (len(panel._gpus), len(panel._nodes)) == (0, 1)
    panel.set_figures(script.side_figures(hybrid=True))
    assert (len(panel._gpus), len(panel._nodes)) == (2, 2)
    assert panel._gpus[1].toolTip() == "RTX 3090: 83 °C"
    assert "VRAM 17.9 / 24 GB" in panel._gpus[1].accessibleDescription()
    # Context and the link stay in sight where cards are many.
    assert panel._context.geometry().bottom() < panel.height() - 60
    with qtbot.waitSignal(panel.more_requested):
        panel._more.click()
    panel.set_figures(SideFigures(pinned=pinned_values(shown(), (keys.power(),))))
    assert panel._pins.isVisible()
    assert panel._pins.accessibleDescription() == "Power 141 W"
    panel.grab()
