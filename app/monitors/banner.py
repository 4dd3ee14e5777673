"""Banner: one line across the page: a card that is hot, gauges that stand still, a message that is replayed."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QWidget

from app import theme
from app.widgets import paint
from app.widgets.buttons import PushButton
from app.widgets.icon import draw_icon

Tone = Literal["err", "warn", "accent"]
_HEIGHT = 42


class Banner(QWidget):
    """Hidden until it has something to say. chosen: its button."""

    chosen = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._tone: Tone = "accent"
        self._icon = ""
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._label = QLabel()
        self._label.setTextFormat(Qt.TextFormat.PlainText)
        self._label.setWordWrap(True)
        self._label.setFont(theme.font(13))
        self.button = PushButton("", height=28)
        row = QHBoxLayout(self)
        row.setContentsMargins(42, 6, 8, 6)
        row.setSpacing(10)
        row.addWidget(self._label, 1)
        row.addWidget(self.button)
        self.button.clicked.connect(self.chosen)
        theme.hub().changed.connect(self.update)
        self.hide()

    def say(self, text: str, tone: Tone = "accent", icon: str = "circle-alert", button: str = "") -> None:
        """Shows a sentence; an empty one hides the banner."""
        if text != self._label.text():
            self._label.setText(text)
            self.setAccessibleName(text)
        if (tone, icon) != (self._tone, self._icon):
            self._tone, self._icon = tone, icon
            self.update()
        self.button.set_content(button, "", "", "solid")
        self.button.setVisible(bool(button))
        self.setVisible(bool(text))

    @property
    def text(self) -> str:
        """The sentence, empty while nothing is shown."""
        return "" if self.isHidden() else self._label.text()

    def minimumSizeHint(self) -> QSize:
        return QSize(200, _HEIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        paint.rounded(painter, rect, 10, theme.color(self._tone, 0.10))
        draw_icon(painter, self._icon or "circle-alert", 15, rect.height() / 2 - 8, 16, self._tone)
