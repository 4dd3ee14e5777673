"""SensorOps: readings of the machine for whoever shows them; none are taken while nobody looks."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.bridge.engine_bridge import EngineBridge
from engine.api.commands import WatchSensors
from engine.api.events import Event, Sensors


class SensorOps(QObject):
    """Signal read(HardwareSnapshot)."""

    read = Signal(object)

    def __init__(self, bridge: EngineBridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._period_s = 0.0
        bridge.happened.connect(self._on_event)

    def watch(self, period_s: float) -> None:
        """Readings every period_s from now on; 0 ends them."""
        if period_s != self._period_s:
            self._period_s = period_s
            self._bridge.submit(WatchSensors(self._bridge.new_id(), period_s))

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Sensors) and self._period_s > 0:
            self.read.emit(event.snapshot)
