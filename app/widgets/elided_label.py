"""ElidedLabel: one line of plain text that ends in an ellipsis where it does not fit."""

from __future__ import annotations

from PySide6.QtCore import QSize
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app import theme
from app.widgets import paint


class ElidedLabel(QWidget):
    """Plain text only, so that nothing a model or a file name says is read as markup. The tooltip holds the whole text."""

    def __init__(
        self, text: str = "", px: int = 13, weight: int = 400, color_token: str = "text", parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._text = text
        self._px = px
        self._weight = weight
        self._color_token = color_token
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(text)
        theme.hub().changed.connect(self.update)

    def set_text(self, text: str) -> None:
        """Show another text."""
        if text != self._text:
            self._text = text
            self.setAccessibleName(text)
            self.updateGeometry()
            self.update()

    def text(self) -> str:
        """The whole text."""
        return self._text

    def sizeHint(self) -> QSize:
        return QSize(round(paint.text_width(self._text, self._px, self._weight)) + 2, self._px + 7)

    def minimumSizeHint(self) -> QSize:
        return QSize(20, self._px + 7)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.text(
            painter,
            0,
            self.height() / 2 + self._px * 0.36,
            self._text,
            self._px,
            self._weight,
            self._color_token,
            max_width=self.width(),
        )
