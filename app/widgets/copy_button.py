"""CopyButton: icon and word; shows a tick for a moment after copying."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, QTimer
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.widgets import paint
from app.widgets.icon import draw_icon
from app.widgets.painted_button import PaintedButton

_CONFIRM_MS = 1500


class CopyButton(PaintedButton):
    """The caller copies and calls confirm()."""

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self._done = False
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_CONFIRM_MS)
        self._timer.timeout.connect(lambda: self._set_done(False))
        self.setFixedSize(self.sizeHint())

    def confirm(self) -> None:
        """Show that it worked."""
        self._set_done(True)
        self._timer.start()

    def _set_done(self, done: bool) -> None:
        self._done = done
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(round(paint.text_width(self.text(), 12, 500)) + 34, 26)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        if self.hovered:
            paint.rounded(painter, rect, 6, "overlay")
        ink = "text" if self.hovered else "text2"
        draw_icon(painter, "check" if self._done else "copy", 7, 6.5, 13, "ok" if self._done else ink)
        paint.text(painter, rect.width() - 6, 18, self.text(), 12, 500, ink, "right")
        if self.focus_visible:
            paint.focus_ring(painter, rect, 6)
