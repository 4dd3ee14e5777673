"""PlacementRates: offers to measure this machine where estimates assume its speed, says how that goes, takes what was found."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

from app.i18n import filled, tr
from app.windows.placement_parts import PlacementParts
from engine.api.pure import load_rates


@dataclass(frozen=True, slots=True)
class Offer:
    """A sentence, and the two buttons beside it, empty for none."""

    text: str
    first: str
    second: str


class PlacementRates(QObject):
    """changed(): another offer, or none; notice(sentence)."""

    changed = Signal()
    notice = Signal(str)

    def __init__(self, parts: PlacementParts, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._parts = parts
        self._dismissed = False
        self._asked = False
        parts.calibrate.changed.connect(self.changed)
        parts.calibrate.ended.connect(self._on_ended)
        parts.calibrate.failed.connect(self._on_failed)

    def offer(self) -> Offer | None:
        """What the page says; None: nothing, the machine was measured, or another one is planned for."""
        desk, calibrate = self._parts.desk, self._parts.calibrate
        if desk.prediction is None or not self._parts.machine.is_this:
            return None
        if calibrate.running:
            text = tr("Placement", "Measuring this machine, %1 s so far. Until then speeds are estimated from usual rates.")
            return Offer(filled(text, calibrate.seconds), "", tr("Placement", "Stop measuring"))
        if desk.prediction.calibrated or self._dismissed:
            return None
        text = tr("Placement", "This machine was not measured yet: speeds are estimated from usual rates of such hardware.")
        return Offer(text, tr("Placement", "Measure this machine"), tr("Placement", "Not now"))

    def take(self) -> None:
        """Measures."""
        self._asked = True
        self._parts.calibrate.start()

    def decline(self) -> None:
        """Stops measuring; where nothing is measured, says no more of it until the program is started again."""
        if self._parts.calibrate.running:
            self._asked = False
            self._parts.calibrate.stop()
        else:
            self._dismissed = True
        self.changed.emit()

    def _on_ended(self, sentence: str) -> None:
        """Also when it was begun elsewhere: what is shown is estimated anew."""
        desk = self._parts.desk
        rates = None if desk.machine is None or not self._parts.machine.is_this else load_rates(desk.machine)
        if rates is not None:
            desk.set_rates(rates)
        if self._asked:
            self.notice.emit(sentence)
        self._asked = False
        self.changed.emit()

    def _on_failed(self, sentence: str) -> None:
        if self._asked:
            self.notice.emit(sentence)
        self._asked = False
        self.changed.emit()
