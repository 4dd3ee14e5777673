"""ModelRow: one model on the welcome page: name, size, a line about it, and the button that starts it."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.widgets import paint
from app.widgets.buttons import PushButton
from app.widgets.format import bytes_text

HEIGHT = 68
_BUTTON = 140


class ModelRow(QWidget):
    """The primary row is framed in the accent and its button is filled."""

    started = Signal()

    def __init__(self, name: str, quant: str, file_bytes: int, detail: str, primary: bool, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self._facts = " · ".join(part for part in (quant, bytes_text(file_bytes) if file_bytes else "") if part)
        self._detail = detail
        self._primary = primary
        self._button = PushButton(self.tr("Start chatting"), "primary" if primary else "secondary", self, width=_BUTTON)
        self._button.setAccessibleName(self.tr("Start chatting with {name}").format(name=name))
        self._button.clicked.connect(self.started)
        self.setAccessibleName(name)
        theme.hub().changed.connect(self.update)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._button.setGeometry(self.width() - _BUTTON - 16, 17, _BUTTON, 34)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.rounded(painter, QRectF(self.rect()), 12, "surface", "accent" if self._primary else "line")
        room = self.width() - _BUTTON - 60
        width = paint.text(painter, 18, 28, self._name, 14, 600, max_width=room - 120)
        paint.text(painter, 28 + width, 28, self._facts, 12, 400, "text3", max_width=room - width)
        paint.text(painter, 18, 50, self._detail, 13, 400, "text2", max_width=room)
