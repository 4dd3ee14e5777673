"""Tile: one figure of the whole machine: decode speed, prefill, first token, memory, power; its line over time below it."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from app.monitors.gauge_card import GaugeCard
from app.monitors.reading import Reading
from app.monitors.time_plot import TimePlot
from app.widgets import paint

HEIGHT = 112
_PAD = 14


@dataclass(frozen=True, slots=True)
class TileFigures:
    """value: label, text and unit of the tile; note: at its right, quieter; faded: of the last run, not of now."""

    value: Reading
    note: str = ""
    faded: bool = False


class Tile(GaugeCard):
    """`token`: the colour of the line."""

    def __init__(self, token: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._figures: TileFigures | None = None
        self.plot = TimePlot(token, self)
        self.setFixedHeight(HEIGHT)

    def set_figures(self, figures: TileFigures) -> None:
        """Show other figures."""
        if figures == self._figures:
            return
        self._figures = figures
        self.set_readings(figures.value.label, (figures.value,))
        self.update()

    @property
    def figures(self) -> TileFigures | None:
        """What is shown."""
        return self._figures

    def sizeHint(self) -> QSize:
        return QSize(211, HEIGHT)

    def value_rects(self) -> tuple[QRectF, ...]:
        return (QRectF(self.rect()).adjusted(6, 6, -6, -46),)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.plot.setGeometry(_PAD, 68, max(10, self.width() - 2 * _PAD), 32)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        self.paint_frame(painter)
        figures = self._figures
        if figures is not None:
            self._paint(painter, figures)
        self.paint_focus(painter)

    def _paint(self, painter: QPainter, figures: TileFigures) -> None:
        value, right = figures.value, self.width() - _PAD
        used = paint.text(painter, _PAD, 24, value.label, 12, 500, "text2")
        room = right - _PAD - used - 10
        if figures.note and room > 24:
            paint.text(painter, right, 24, figures.note, 11, 400, "text3", "right", max_width=room)
        tone = "text3" if figures.faded or not value.is_known else value.tone
        used = paint.text(painter, _PAD, 54, value.text, 24, 600, tone, max_width=right - _PAD)
        if value.unit and right - _PAD - used > 16:
            paint.text(painter, _PAD + used + 6, 54, value.unit, 12, 400, "text2", max_width=right - _PAD - used - 6)
