"""StateCard: in the place of the board while there is none: no model, the header is being read, or it could not be."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app import theme
from app.widgets import paint
from app.widgets.buttons import PushButton
from app.widgets.icon import draw_icon

_WIDTH = 620
_TILE = 56


class StateCard(QWidget):
    """chosen: the button."""

    chosen = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._icon = ""
        self._title = self._label(15, 600)
        self._text = self._label(13, 400)
        self.button = PushButton("", "primary")
        self.button.clicked.connect(self.chosen)
        column = QVBoxLayout(self)
        column.setSpacing(8)
        column.addStretch(2)
        column.addSpacing(_TILE + 16)
        column.addWidget(self._title, 0, Qt.AlignmentFlag.AlignHCenter)
        column.addWidget(self._text, 0, Qt.AlignmentFlag.AlignHCenter)
        column.addSpacing(10)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(self.button)
        row.addStretch(1)
        column.addLayout(row)
        column.addStretch(3)
        theme.hub().changed.connect(self._recolor)
        self._recolor()

    @staticmethod
    def _label(px: int, weight: int) -> QLabel:
        label = QLabel()
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setFont(theme.font(px, weight))
        label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        label.setWordWrap(True)
        label.setFixedWidth(_WIDTH)
        return label

    def show_state(self, icon_name: str, title: str, text: str, button: str = "") -> None:
        """button empty: there is nothing to do but wait."""
        self._icon = icon_name
        self._title.setText(title)
        self._text.setText(text)
        self.setAccessibleName(f"{title} {text}")
        for label in (self._title, self._text):
            label.setFixedHeight(label.heightForWidth(_WIDTH))
        self.button.set_content(button, "", "", "primary")
        self.button.setVisible(bool(button))
        self.update()

    @property
    def text(self) -> str:
        """Title and sentence."""
        return f"{self._title.text()}\n{self._text.text()}"

    def _recolor(self) -> None:
        self._text.setStyleSheet(f"color: {theme.color('text2').name()};")
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self._icon:
            return
        painter = QPainter(self)
        paint.begin(painter)
        x = self.width() / 2 - _TILE / 2
        y = self._title.y() - _TILE - 16
        paint.rounded(painter, QRectF(x, y, _TILE, _TILE), 14, "raised", "line")
        draw_icon(painter, self._icon, x + _TILE / 2 - 12, y + _TILE / 2 - 12, 24, "text2")
