"""ErrorCard: an answer that failed: one sentence of cause, one action, inside the message."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.chat.blocks.rich_text import TextStyle, fill_plain
from app.chat.blocks.text_view import TextView
from app.widgets import paint
from app.widgets.buttons import PushButton
from app.widgets.icon import draw_icon

_PAD = 14
_LEAST_TEXT = 220


class ErrorCard(QWidget):
    """The text can be selected and copied."""

    action_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._text = ""
        self._view = TextView(self)
        self._button = PushButton(self.tr("Try again"), parent=self, height=30)
        self._button.clicked.connect(self.action_requested)
        theme.hub().changed.connect(self._fill)

    def set_text(self, text: str, action: str = "") -> None:
        """The sentence, and the words of the button (Try again by default)."""
        self._text = text
        if action:
            self._button.setText(action)
            self._button.setAccessibleName(action)
        self.setAccessibleName(text)
        self._fill()

    def _fill(self) -> None:
        fill_plain(self._view.document, self._text or self.tr("The answer failed."), TextStyle(px=13, line_height=135))
        self._view.text_changed()
        self.update()

    def layout_width(self, width: int) -> int:
        """Height for a width."""
        button = self._button.sizeHint().width()
        if width - 42 - button - 2 * _PAD < _LEAST_TEXT:
            return self._layout_below(width, button)
        height = self._view.layout_width(width - 42 - button - 2 * _PAD)
        total = max(height + 2 * 11, 48)
        self._view.setGeometry(42, (total - height) // 2 - 1, width - 42 - button - 2 * _PAD, height)
        self._button.setGeometry(width - button - 9, (total - 30) // 2, button, 30)
        return total

    def _layout_below(self, width: int, button: int) -> int:
        """A narrow card has its button below the sentence."""
        height = self._view.layout_width(width - 42 - _PAD)
        self._view.setGeometry(42, 10, width - 42 - _PAD, height)
        self._button.setGeometry(42, height + 18, min(button, width - 42 - _PAD), 30)
        return height + 18 + 30 + 10

    def text_views(self) -> tuple[TextView, ...]:
        """The sentence."""
        return (self._view,)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        paint.rounded(painter, rect, 10, theme.color("err", 0.09))
        draw_icon(
            painter, "circle-alert", 15, min(rect.height() / 2 - 8, self._view.y() + self._view.height() / 2 - 8), 16, "err"
        )
