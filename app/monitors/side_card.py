"""SideCard: a card of the side panel: a head, rows of label and value, the frame of its health. Its kinds paint the rest."""

from __future__ import annotations

from PySide6.QtCore import QRectF
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QWidget

from app import theme
from app.widgets import paint

PAD = 14


class SideCard(QWidget):
    """What is the same in all cards of the panel."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        theme.hub().changed.connect(self.update)

    def open_painter(self, title: str, value: str, tone: str) -> QPainter:
        """A painter with frame and head drawn."""
        painter = QPainter(self)
        paint.begin(painter)
        frame = tone if tone in ("warn", "err") else "line"
        paint.rounded(painter, QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 10, "surface", frame)
        right = self.width() - PAD
        room = right - PAD - paint.text_width(value, 12, 600) - 10
        paint.text(painter, PAD, 22, title, 12, 600, "text", max_width=room)
        paint.text(painter, right, 22, value, 12, 600, tone, "right")
        return painter

    def row(self, painter: QPainter, y: float, label: str, value: str) -> None:
        """A label at the left, its value at the right, with the baseline y."""
        paint.text(painter, PAD, y, label, 11, 500, "text3")
        paint.text(painter, self.width() - PAD, y, value, 11, 500, "text2", "right")
