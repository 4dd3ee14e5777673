"""WarningStrip: the one thing about this machine that is worth a line at the first start, and the way to what helps."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.widgets import paint
from app.widgets.buttons import LinkButton
from app.widgets.icon import draw_icon

HEIGHT = 44


class WarningStrip(QWidget):
    """Hidden while there is nothing to say. chosen: the link."""

    chosen = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._text = ""
        self.link = LinkButton("", self)
        self.link.clicked.connect(self.chosen)
        theme.hub().changed.connect(self.update)
        self.hide()

    def show_warning(self, text: str, link: str) -> None:
        """An empty text takes it away."""
        self._text = text
        self.setAccessibleName(text)
        self.setToolTip(text)
        self.link.setText(link)
        self.link.setAccessibleName(link)
        self.setVisible(bool(text))
        self._place()
        self.update()

    @property
    def text(self) -> str:
        """What it says, empty while it is hidden."""
        return "" if self.isHidden() else self._text

    def _place(self) -> None:
        size = self.link.sizeHint()
        self.link.setGeometry(self.width() - size.width() - 16, (HEIGHT - size.height()) // 2, size.width(), size.height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        paint.rounded(painter, rect, 10, theme.color("warn", 0.10))
        draw_icon(painter, "triangle-alert", 16, HEIGHT / 2 - 8, 16, "warn")
        paint.text(painter, 42, HEIGHT / 2 + 4.5, self._text, 13, 400, max_width=rect.width() - 42 - self.link.width() - 36)
