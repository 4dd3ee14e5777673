"""ComposerEdit: the text box of the composer: grows with its text, sends on Enter, turns large pastes into attachments."""

from __future__ import annotations

from PySide6.QtCore import QMimeData, Qt, Signal
from PySide6.QtGui import QGuiApplication, QInputMethodEvent, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QWidget

from app import theme

PASTE_LIMIT_BYTES = 64 * 1024
LONG_LINE = 20_000
"""One line without spaces costs Qt quadratic time to wrap: 20,000 characters 30 ms, 500,000 seven seconds."""
MAX_LINES = 10


def is_large(text: str) -> bool:
    """Whether a pasted text belongs into an attachment instead of the box."""
    if len(text) > PASTE_LIMIT_BYTES or len(text.encode("utf-8", "surrogatepass")) > PASTE_LIMIT_BYTES:
        return True
    return len(text) > LONG_LINE and max(map(len, text.split("\n"))) > LONG_LINE


class ComposerEdit(QPlainTextEdit):
    """Signals what the keyboard asks for; height_changed carries the pixel height that shows up to ten lines."""

    send_requested = Signal(bool)
    edit_last_requested = Signal()
    large_text_pasted = Signal(str)
    height_changed = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.send_with_ctrl = False
        self._preedit = ""
        self._height = 0
        self.setObjectName("bare")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFont(theme.font(14))
        self.setTabChangesFocus(True)
        self.setAcceptDrops(False)
        self.document().setDocumentMargin(0)
        self.viewport().setAutoFillBackground(False)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName(self.tr("Message"))
        self.textChanged.connect(self.refresh_height)

    def wanted_height(self) -> int:
        """Height for the text as it is wrapped now, between one and ten lines."""
        lines = int(self.document().documentLayout().documentSize().height())
        return min(MAX_LINES, max(1, lines)) * self.fontMetrics().lineSpacing() + 2

    def refresh_height(self) -> None:
        """Emit height_changed if the number of shown lines changed."""
        height = self.wanted_height()
        lines = int(self.document().documentLayout().documentSize().height())
        policy = Qt.ScrollBarPolicy.ScrollBarAsNeeded if lines > MAX_LINES else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        self.setVerticalScrollBarPolicy(policy)
        if height != self._height:
            self._height = height
            self.height_changed.emit(height)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.refresh_height()

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._preedit = event.preeditString()
        super().inputMethodEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        modifiers = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._on_enter(event, modifiers)
        elif event.key() == Qt.Key.Key_Up and not modifiers and self.document().isEmpty() and not self._preedit:
            self.edit_last_requested.emit()
        else:
            super().keyPressEvent(event)

    def _on_enter(self, event: QKeyEvent, modifiers: Qt.KeyboardModifier) -> None:
        if self._preedit:
            QGuiApplication.inputMethod().commit()
            self._preedit = ""
        elif modifiers == Qt.KeyboardModifier.ShiftModifier or (self.send_with_ctrl and not modifiers):
            self.insertPlainText("\n")
            self.ensureCursorVisible()
        else:
            self.send_requested.emit(modifiers == Qt.KeyboardModifier.ControlModifier and not self.send_with_ctrl)

    def insertFromMimeData(self, source: QMimeData) -> None:
        if not source.hasText():
            return
        text = source.text()
        if is_large(text):
            self.large_text_pasted.emit(text)
        else:
            self.insertPlainText(text)
