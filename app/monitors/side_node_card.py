"""SideNodeCard: a node of memory, or the whole processor, in the side panel: one square per core, what it reads, RAM."""

from __future__ import annotations

from PySide6.QtGui import QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from app.monitors.painters import HeatGrid, SegmentBar
from app.monitors.side_card import PAD, SideCard
from app.monitors.side_figures import SideNode

_GRID_TOP = 33


class SideNodeCard(SideCard):
    """Its height follows the number of cores and rows."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.figures: SideNode | None = None
        self._grid = HeatGrid(self)
        self._bar = SegmentBar(self)
        self._place()

    def set_figures(self, figures: SideNode) -> None:
        """One reading."""
        before, self.figures = self.figures, figures
        resized = self._grid.set_loads(figures.loads)
        self._bar.set_segments(figures.segments)
        if before is None or resized or bool(before.read) != bool(figures.read):
            self._place()
        if before != figures:
            self.setToolTip(figures.sentence)
            self.setAccessibleName(figures.title)
            self.setAccessibleDescription(self._spoken(figures))
            self.update()

    def _spoken(self, figures: SideNode) -> str:
        read = self.tr("reads {rate}").format(rate=figures.read) if figures.read else ""
        return ", ".join(part for part in (figures.use, read, f"RAM {figures.memory}", figures.temperature) if part)

    def _rows(self) -> int:
        return 3 if self.figures is not None and self.figures.read else 2

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def _place(self) -> None:
        width, grid = self.width() - 2 * PAD, self._grid.wanted_height()
        self._grid.setGeometry(PAD, _GRID_TOP, width, grid + 1)
        self._bar.setGeometry(PAD, _GRID_TOP + grid + 12, width, 7)
        height = _GRID_TOP + grid + 29 + 18 * self._rows()
        if height != self.minimumHeight():
            self.setFixedHeight(height)

    def paintEvent(self, event: QPaintEvent) -> None:
        figures = self.figures
        if figures is None:
            return
        painter = self.open_painter(figures.title, figures.temperature, figures.tone)
        y = _GRID_TOP + self._grid.wanted_height() + 37
        n = len(figures.loads)
        self.row(painter, y, self.tr("Use, one core") if n == 1 else self.tr("Use, %n cores", "", n), figures.use)
        if figures.read:
            y += 18
            self.row(painter, y, self.tr("DRAM read"), figures.read)
        self.row(painter, y + 18, self.tr("RAM"), figures.memory)
