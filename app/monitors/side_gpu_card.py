"""SideGpuCard: a graphics card in the side panel: temperature, how much it works, power, memory."""

from __future__ import annotations

from PySide6.QtGui import QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from app.monitors.history import History
from app.monitors.painters import SegmentBar, Sparkline
from app.monitors.side_card import PAD, SideCard
from app.monitors.side_figures import SideGpu
from app.widgets import paint

HEIGHT = 110
_FIGURES = 64


class SideGpuCard(SideCard):
    """Keeps the last minute of `working` for its line."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.figures: SideGpu | None = None
        self._history = History(60)
        self._line = Sparkline(self._history, "kv", self)
        self._bar = SegmentBar(self)
        self.setFixedHeight(HEIGHT)

    def set_figures(self, figures: SideGpu) -> None:
        """One reading."""
        if self.figures is not None and self.figures.key != figures.key:
            self._history.clear()
        changed, self.figures = figures != self.figures, figures
        if figures.working is not None:
            self._history.push(figures.working)
            self._line.refresh()
        self._bar.set_segments(figures.segments)
        if changed:
            self.setToolTip(figures.sentence)
            self.setAccessibleName(figures.title)
            self.setAccessibleDescription(self._spoken(figures))
            self.update()

    def _working(self, figures: SideGpu) -> str:
        return "n/a" if figures.working is None else f"{figures.working:.0f} %"

    def _spoken(self, figures: SideGpu) -> str:
        parts = [
            figures.temperature,
            self._working(figures),
            figures.power,
            f"{self.tr('VRAM')} {figures.memory}",
            figures.sentence,
        ]
        return ", ".join(part for part in parts if part)

    def resizeEvent(self, event: QResizeEvent) -> None:
        width = self.width() - 2 * PAD
        self._line.setGeometry(PAD, 34, width - _FIGURES, 28)
        self._bar.setGeometry(PAD, 74, width, 7)

    def paintEvent(self, event: QPaintEvent) -> None:
        figures = self.figures
        if figures is None:
            return
        painter = self.open_painter(figures.title, figures.temperature, figures.tone)
        right = self.width() - PAD
        paint.text(painter, right, 46, self._working(figures), 12, 600, "text", "right")
        paint.text(painter, right, 62, figures.power, 11, 400, "text3", "right")
        self.row(painter, 99, self.tr("VRAM"), figures.memory)
