"""MessageEditor: a sent message opened for editing in its place. Sending it makes a new branch; the old text is kept."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.chat.composer_edit import ComposerEdit
from app.widgets import paint
from app.widgets.buttons import PushButton


class MessageEditor(QWidget):
    """Enter sends, Escape cancels."""

    accepted = Signal(str)
    cancelled = Signal()
    height_changed = Signal()

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._edit = ComposerEdit(self)
        self._edit.setPlainText(text)
        self._send = PushButton(self.tr("Send"), "primary", self, height=30)
        self._cancel = PushButton(self.tr("Cancel"), parent=self, height=30)
        self._edit.send_requested.connect(lambda _keep: self._accept())
        self._edit.large_text_pasted.connect(self._edit.insertPlainText)
        self._edit.height_changed.connect(lambda _height: self.height_changed.emit())
        self._send.clicked.connect(self._accept)
        self._cancel.clicked.connect(self.cancelled)
        theme.hub().changed.connect(self.update)

    def focus(self) -> None:
        """Put the keyboard at the end of the text."""
        self._edit.setFocus(Qt.FocusReason.OtherFocusReason)
        cursor = self._edit.textCursor()
        cursor.movePosition(cursor.MoveOperation.End)
        self._edit.setTextCursor(cursor)

    def layout_width(self, width: int) -> int:
        """Height for a width."""
        self._edit.resize(width - 32, self._edit.height())
        height = self._edit.wanted_height()
        self._edit.setGeometry(16, 14, width - 32, height)
        send = self._send.sizeHint().width()
        cancel = self._cancel.sizeHint().width()
        self._send.setGeometry(width - send - 12, height + 24, send, 30)
        self._cancel.setGeometry(width - send - cancel - 20, height + 24, cancel, 30)
        return height + 66

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.cancelled.emit()
        else:
            super().keyPressEvent(event)

    def _accept(self) -> None:
        text = self._edit.toPlainText()
        if text.strip():
            self.accepted.emit(text)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.rounded(painter, QRectF(self.rect()), 14, "raised", "accent")
