"""A GPU that fails while it computes is marked on the desk, until a model computes on it again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal
from pytestqt.qtbot import QtBot

from app.ops.placement_lost import LostDevices
from app.ops.placement_machine import MachineChoice
from engine.api.events import Failed, ModelReady
from engine.api.pure import Gpu, UnitId
from engine.api.values import RequestId
from tests.helpers.placement_table import opened_desk

FAULT = "gpu1 (RTX 3090) stopped working (CUDA error: unknown error); load the model again, without it if it stays so"


class Bridge(QObject):
    """Tells what a test wants told."""

    happened = Signal(object)


@dataclass
class OtherMachine(MachineChoice):
    """One that a file describes."""

    path: str = "/box.json"


def test_a_fault_marks_the_card_until_it_computes_again(qtbot: QtBot) -> None:
    bridge = Bridge()
    with opened_desk(qtbot) as desk:
        LostDevices(desk, bridge, MachineChoice())  # type: ignore[arg-type]
        bridge.happened.emit(Failed(RequestId("a"), "DeviceLost", FAULT))
        assert [row.name for row in desk.devices() if row.lost] == ["GPU 1"]
        assert desk.state == "does not fit"
        bridge.happened.emit(Failed(RequestId("b"), "OutOfMemory", "gpu0 is full; move something"))
        bridge.happened.emit(Failed(RequestId("b"), "DeviceLost", "the CPU did not answer gpu0 within 2 s; try again"))
        assert [row.name for row in desk.devices() if row.lost] == ["GPU 1"]
        assert desk.placement is not None and desk.outline is not None
        away = tuple(unit for unit, device in desk.placement.units if device == Gpu(1) and unit.kind != "kv")
        assert desk.move(away, Gpu(0))
        assert desk.state == "ready"
        bridge.happened.emit(ModelReady(RequestId("c"), replace(desk.outline.info, placement=desk.placement)))
        assert [row.name for row in desk.devices() if row.lost] == ["GPU 1"]
        desk.undo()
        bridge.happened.emit(ModelReady(RequestId("d"), replace(desk.outline.info, placement=desk.placement)))
        assert not any(row.lost for row in desk.devices())
        assert desk.state == "ready"


def test_the_mark_outlives_another_model_and_is_not_for_another_machine(qtbot: QtBot) -> None:
    bridge = Bridge()
    with opened_desk(qtbot) as desk:
        LostDevices(desk, bridge, MachineChoice())  # type: ignore[arg-type]
        bridge.happened.emit(Failed(RequestId("a"), "DeviceLost", FAULT))
        desk.open("/models/other.gguf")
        qtbot.waitUntil(lambda: desk.card(UnitId("head")) is not None and desk.state != "estimating")
        assert [row.name for row in desk.devices() if row.lost] == ["GPU 1"]
    with opened_desk(qtbot) as desk:
        LostDevices(desk, bridge, OtherMachine())  # type: ignore[arg-type]
        bridge.happened.emit(Failed(RequestId("a"), "DeviceLost", FAULT))
        assert not any(row.lost for row in desk.devices())
