"""AttachmentChip: a large pasted text shown as one chip above the message box, with a button that removes it."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.widgets import paint
from app.widgets.buttons import IconButton
from app.widgets.format import bytes_text
from app.widgets.icon import draw_icon

HEIGHT = 40


class AttachmentChip(QWidget):
    """Holds the text; shows its size and its first line."""

    removed = Signal()

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.text = text
        self._size = bytes_text(len(text.encode("utf-8", "surrogatepass")))
        self._line = text[:200].strip().split("\n")[0][:60]
        self._close = IconButton("x", self.tr("Remove attachment"), self, size=22, icon_size=13)
        self._close.clicked.connect(self.removed)
        self.setAccessibleName(self.tr("Pasted text, {size}").format(size=self._size))
        self.setFixedSize(self.sizeHint())
        theme.hub().changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(220, HEIGHT)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._close.move(self.width() - 28, 9)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.rounded(painter, QRectF(self.rect()), 8, "overlay", "line2")
        draw_icon(painter, "file-text", 10, 12, 16, "text2")
        title = self.tr("Pasted text · {size}").format(size=self._size)
        paint.text(painter, 34, 17, title, 12, 600, "text", max_width=self.width() - 66)
        paint.text(painter, 34, 32, self._line, 11, 400, "text3", max_width=self.width() - 66)
