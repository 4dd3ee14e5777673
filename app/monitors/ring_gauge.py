"""RingGauge: a three-quarter ring filled by a share."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from app import theme
from app.widgets import paint


def draw_ring(painter: QPainter, x: float, y: float, radius: float, share: float, token: str, width: float) -> None:
    """The ring around (x, y): open at the bottom, filled clockwise from the lower left."""
    rect = QRectF(x - radius, y - radius, 2 * radius, 2 * radius)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    for color, part in (("overlay", 1.0), (token, min(1.0, max(0.0, share)))):
        painter.setPen(QPen(theme.color(color), width, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap))
        painter.drawArc(rect, 225 * 16, int(-270 * 16 * part))


class RingGauge(QWidget):
    """One share, 0..1; accent, then amber from 0.8, red from 0.95."""

    def __init__(self, parent: QWidget | None = None, *, radius: float = 8, width: float = 3) -> None:
        super().__init__(parent)
        self._share = 0.0
        self._radius = radius
        self._width = width
        side = round(2 * (radius + width))
        self.setFixedSize(side, side)
        theme.hub().changed.connect(self.update)

    def set_share(self, share: float) -> None:
        """Show a share of 0..1."""
        if share != self._share:
            self._share = share
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        token = "accent" if self._share < 0.8 else ("warn" if self._share < 0.95 else "err")
        draw_ring(painter, self.width() / 2, self.height() / 2, self._radius, self._share, token, self._width)
