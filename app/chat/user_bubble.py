"""UserBubble: what the user wrote, as plain text in a rounded box at the right."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.chat.blocks.rich_text import TextStyle, fill_plain
from app.chat.blocks.text_view import TextView
from app.chat.plain import break_long_lines
from app.widgets import paint
from app.widgets.buttons import LinkButton
from app.widgets.format import bytes_text

_PAD_X, _PAD_Y, _FOOT = 16, 11, 7
_SHARE = 0.5834
"""The bubble takes at most this share of the column: 420 of 720 pixels."""
_PREVIEW = 4000
_FULL = 60_000


class UserBubble(QWidget):
    """A very long text is shown in part; Show more shows up to 60,000 characters, copying takes all of it."""

    resized = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._text = ""
        self._limit = _PREVIEW
        self._view = TextView(self)
        self._more: LinkButton | None = None
        theme.hub().changed.connect(self._fill)

    def set_text(self, text: str) -> None:
        """Show a text."""
        if text != self._text:
            self._text = text
            self._fill()

    def _fill(self) -> None:
        shown = self._text[: self._limit]
        fill_plain(self._view.document, break_long_lines(shown), TextStyle(line_height=140))
        self._view.text_changed()
        cut = len(self._text) > len(shown)
        if cut and self._more is None:
            self._more = LinkButton("", self, px=12)
            self._more.clicked.connect(self._on_more_clicked)
        if self._more is not None and not cut:
            self._more.hide()
        elif self._more is not None:
            self._more.show()
            size = bytes_text(len(self._text.encode("utf-8", "replace")))
            text = self.tr("Show more of {size}") if self._limit == _PREVIEW else self.tr("The rest of {size} is not shown")
            self._more.setText(text.format(size=size))
            self._more.setEnabled(self._limit == _PREVIEW)
        self.update()

    def _on_more_clicked(self) -> None:
        self._limit = _FULL
        self._fill()
        self.resized.emit()

    def layout_width(self, column: int) -> QSize:
        """Size inside a column: as wide as the text, at most its share."""
        limit = round(column * _SHARE) - 2 * _PAD_X
        self._view.document.setTextWidth(-1)
        ideal = int(self._view.document.idealWidth()) + 2
        inner = min(limit, ideal)
        height = self._view.layout_width(inner)
        self._view.setGeometry(_PAD_X, _PAD_Y, inner, height)
        if self._more is not None and not self._more.isHidden():
            self._more.setGeometry(_PAD_X - 1, _PAD_Y + height + 4, self._more.sizeHint().width(), 20)
            height += 24
            inner = max(inner, self._more.sizeHint().width())
        return QSize(inner + 2 * _PAD_X, height + _PAD_Y + _FOOT)

    def text_views(self) -> tuple[TextView, ...]:
        """The text."""
        return (self._view,)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.rounded(painter, QRectF(self.rect()), 14, "overlay")
