"""SidePins: the values that were pinned on the Monitors page, in the side panel."""

from __future__ import annotations

from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QWidget

from app.monitors.side_card import SideCard
from app.monitors.side_figures import Pinned

_ROW = 20


class SidePins(SideCard):
    """Hidden while nothing is pinned."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.values: tuple[Pinned, ...] = ()
        self.setAccessibleName(self.tr("Pinned values"))
        self.hide()

    def set_values(self, values: tuple[Pinned, ...]) -> None:
        """One reading of what is pinned."""
        if values == self.values:
            return
        if len(values) != len(self.values):
            self.setFixedHeight(34 + _ROW * len(values))
            self.setVisible(bool(values))
        self.values = values
        self.setAccessibleDescription(", ".join(f"{one.label} {one.value}" for one in values))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = self.open_painter(self.tr("Pinned"), "", "text")
        for i, one in enumerate(self.values):
            self.row(painter, 42 + _ROW * i, one.label, one.value)
