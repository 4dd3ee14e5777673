"""LostDevices: marks a GPU on the placement desk that met a fault or went away while it computed, until it computes again."""

from __future__ import annotations

import re

from PySide6.QtCore import QObject

from app.bridge.engine_bridge import EngineBridge
from app.ops.placement_desk import PlacementDesk
from app.ops.placement_machine import MachineChoice
from engine.api.events import Event, Failed, ModelReady
from engine.api.pure import Device, Gpu

_BLAMED = re.compile(r"gpu(\d{1,4})\b")


class LostDevices(QObject):
    """It belongs to the desk. Another machine than this one loses nothing here."""

    def __init__(self, desk: PlacementDesk, bridge: EngineBridge, machine: MachineChoice) -> None:
        super().__init__(desk)
        self._desk, self._machine = desk, machine
        self._lost: frozenset[Device] = frozenset()
        bridge.happened.connect(self._on_event)
        desk.outline_changed.connect(self._tell)

    def add(self, gpu: int) -> None:
        """One that somebody else saw go."""
        self._lost |= {Gpu(gpu)}
        self._tell()

    def _on_event(self, event: Event) -> None:
        match event:
            case Failed(kind="DeviceLost", message=message):
                # The message begins with the device that is to blame.
                blamed = _BLAMED.match(message)
                self._lost |= {Gpu(int(blamed[1]))} if blamed is not None else frozenset()
            case ModelReady(info=info) if info.placement is not None:
                self._lost -= frozenset(info.placement.devices)
            case _:
                return
        self._tell()

    def _tell(self) -> None:
        if self._desk.outline is not None:
            self._desk.set_lost(self._lost if self._machine.is_this else frozenset())
