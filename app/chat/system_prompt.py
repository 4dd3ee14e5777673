"""SystemPromptDialog: the instructions that stand before a conversation."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QDialog, QHBoxLayout, QPlainTextEdit, QVBoxLayout, QWidget

from app import theme
from app.widgets.buttons import LinkButton, PushButton
from app.widgets.elided_label import ElidedLabel


class SystemPromptDialog(QDialog):
    """open_with(text) shows it without blocking; prompt_accepted carries the new text. Ctrl+Enter accepts."""

    prompt_accepted = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(self.tr("System prompt"))
        self.setModal(True)
        self.resize(560, 340)
        self._edit = QPlainTextEdit()
        self._edit.setFont(theme.font(14))
        self._edit.setTabChangesFocus(True)
        self._edit.setAccessibleName(self.tr("System prompt"))
        self._edit.setPlaceholderText(self.tr("For example: answer briefly, in the language of the question."))
        save = PushButton(self.tr("Save"), "primary", keys="Ctrl ↵")
        cancel = PushButton(self.tr("Cancel"))
        clear = LinkButton(self.tr("Clear"), px=13)
        column = QVBoxLayout(self)
        column.setContentsMargins(20, 18, 20, 18)
        column.setSpacing(10)
        column.addWidget(ElidedLabel(self.tr("System prompt"), 16, 600))
        column.addWidget(ElidedLabel(self.tr("The model reads it before every answer of this chat."), 12, 400, "text2"))
        column.addWidget(self._edit, 1)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(clear)
        row.addStretch(1)
        row.addWidget(cancel)
        row.addWidget(save)
        column.addLayout(row)
        save.clicked.connect(self._on_save_clicked)
        cancel.clicked.connect(self.reject)
        clear.clicked.connect(self._edit.clear)

    def open_with(self, prompt: str) -> None:
        """Show the dialog with a text in it."""
        self._edit.setPlainText(prompt)
        cursor = self._edit.textCursor()
        cursor.movePosition(cursor.MoveOperation.End)
        self._edit.setTextCursor(cursor)
        self.open()
        self._edit.setFocus(Qt.FocusReason.OtherFocusReason)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self._on_save_clicked()
        else:
            super().keyPressEvent(event)

    def _on_save_clicked(self) -> None:
        self.accept()
        self.prompt_accepted.emit(self._edit.toPlainText().strip())
