"""NoticeStrip: one sentence across the page about what stands in the way, with at most two ways out."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QWidget

from app import theme
from app.widgets import paint
from app.widgets.buttons import PushButton
from app.widgets.icon import draw_icon

Tone = Literal["err", "warn", "accent"]
_ICONS = {"err": "circle-alert", "warn": "triangle-alert", "accent": "circle-alert"}


class NoticeStrip(QWidget):
    """Hidden until show_notice. first_chosen, second_chosen: the buttons."""

    first_chosen = Signal()
    second_chosen = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._tone: Tone = "err"
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._label = QLabel()
        self._label.setTextFormat(Qt.TextFormat.PlainText)
        self._label.setWordWrap(True)
        self._label.setFont(theme.font(13))
        self.first = PushButton("", height=30)
        self.second = PushButton("", height=30)
        row = QHBoxLayout(self)
        row.setContentsMargins(42, 8, 9, 8)
        row.setSpacing(8)
        row.addWidget(self._label, 1)
        row.addWidget(self.second)
        row.addWidget(self.first)
        self.first.clicked.connect(self.first_chosen)
        self.second.clicked.connect(self.second_chosen)
        theme.hub().changed.connect(self.update)
        self.hide()

    def show_notice(self, text: str, tone: Tone = "err", first: str = "", second: str = "") -> None:
        """first: the way out that is suggested."""
        self._tone = tone
        self._label.setText(text)
        self.setAccessibleName(text)
        for button, words, kind in ((self.first, first, "solid"), (self.second, second, "secondary")):
            button.set_content(words, "", "", "solid" if kind == "solid" else "secondary")
            button.setVisible(bool(words))
        self.setMinimumHeight(46)
        self.show()
        self.update()

    @property
    def text(self) -> str:
        """The sentence, empty while nothing is shown."""
        return "" if self.isHidden() else self._label.text()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        paint.rounded(painter, rect, 10, theme.color(self._tone, 0.10))
        draw_icon(painter, _ICONS[self._tone], 15, rect.height() / 2 - 8, 16, self._tone)
