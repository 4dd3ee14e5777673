"""JumpPill: the round button over the transcript that leads back to the latest message."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.widgets import paint
from app.widgets.icon import draw_icon
from app.widgets.painted_button import PaintedButton


class JumpPill(PaintedButton):
    """Hidden until the reader is away from the end."""

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self.hide()

    def sizeHint(self) -> QSize:
        return QSize(round(paint.text_width(self.text(), 12, 600)) + 46, 32)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        paint.rounded(painter, rect, 16, "line2" if self.hovered else "overlay", "line2")
        draw_icon(painter, "arrow-down", 14, 9, 14, "text")
        paint.text(painter, 34, 20.5, self.text(), 12, 600, "text")
        if self.focus_visible:
            paint.focus_ring(painter, rect, 16)
