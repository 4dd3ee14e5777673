"""Composer: the box where a message is written, with Send or Stop, the sampling preset and the system prompt.

Ctrl+Enter sends and keeps the text. text() holds attachments too, after the typed text. Added signal: text_changed().
"""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.chat.attachment_chip import HEIGHT as CHIP_HEIGHT
from app.chat.attachment_chip import AttachmentChip
from app.chat.composer_edit import ComposerEdit, is_large
from app.widgets import paint
from app.widgets.buttons import PushButton
from app.widgets.chip import Chip

State = Literal["idle", "busy", "no_model"]
COLUMN = 748
"""Width of the box: the text column of the transcript and 14 px on both sides."""
_SIDE = 44
_FOOT = 24
_TOP = 17
_ROW = 62
_LEAST_CHIP = 72
"""A chip that had less room would say nothing; the palette offers what it does."""


class Composer(QWidget):
    """`idle` sends, `busy` stops, `no_model` sends too: the page then loads the last model after a notice."""

    send_requested = Signal(str)
    stop_requested = Signal()
    sampling_requested = Signal()
    system_prompt_requested = Signal()
    edit_last_requested = Signal()
    text_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state: State = "idle"
        self._model = ""
        self._attachments: list[AttachmentChip] = []
        self._edit = ComposerEdit(self)
        self._sampling = Chip("", "gauge", self)
        self._system = Chip("", "", self)
        self._button = PushButton("", parent=self, height=32, icon_name="arrow-up", keys="↵")
        self._box = QRectF()
        self._connect()
        self.set_model_name("")
        self.set_preset_label(self.tr("Sampling"))
        self.set_system_prompt("")
        self._refresh_button()

    def _connect(self) -> None:
        self._edit.send_requested.connect(self._on_send_requested)
        self._edit.edit_last_requested.connect(self.edit_last_requested)
        self._edit.large_text_pasted.connect(self._attach)
        self._edit.height_changed.connect(lambda _height: self._fit())
        self._edit.textChanged.connect(self._on_text_changed)
        self._button.clicked.connect(self._on_button_clicked)
        self._sampling.clicked.connect(self.sampling_requested)
        self._system.clicked.connect(self.system_prompt_requested)
        theme.hub().changed.connect(self.update)

    def set_state(self, state: State) -> None:
        """What the button does."""
        self._state = state
        self._refresh_button()

    def set_send_with_ctrl(self, wanted: bool) -> None:
        """Whether Ctrl+Enter sends and Enter starts a new line, instead of the other way round."""
        self._edit.send_with_ctrl = wanted

    def set_model_name(self, name: str) -> None:
        """Name in the placeholder."""
        self._model = name
        self._edit.setPlaceholderText(self.tr("Message {name}…").format(name=name) if name else self.tr("Write a message…"))

    def set_preset_label(self, label: str) -> None:
        """E.g. `Precise · 0.6`."""
        self._sampling.set_label(label)
        self._sampling.setAccessibleName(self.tr("Sampling: {label}").format(label=label))
        self._place()

    def set_system_prompt(self, prompt: str) -> None:
        """The chip says whether there is one; its tooltip shows the beginning."""
        self._system.set_label(self.tr("System prompt") if prompt.strip() else self.tr("No system prompt"))
        self._system.set_active(bool(prompt.strip()))
        self._system.setToolTip("" if not prompt else prompt[:300].replace("<", "‹"))
        self._place()

    def text(self) -> str:
        """The typed text followed by the attachments."""
        parts = [self._edit.toPlainText(), *(chip.text for chip in self._attachments)]
        return "\n\n".join(part for part in parts if part)

    def set_text(self, text: str) -> None:
        """Replace everything; a large text becomes an attachment."""
        for chip in list(self._attachments):
            self._detach(chip)
        if is_large(text):
            self._edit.clear()
            self._attach(text)
            return
        self._edit.setPlainText(text)
        cursor = self._edit.textCursor()
        cursor.movePosition(cursor.MoveOperation.End)
        self._edit.setTextCursor(cursor)

    def focus(self) -> None:
        """Put the keyboard into the box."""
        self._edit.setFocus(Qt.FocusReason.OtherFocusReason)

    def _attach(self, text: str) -> None:
        chip = AttachmentChip(text, self)
        chip.removed.connect(lambda: self._detach(chip))
        self._attachments.append(chip)
        chip.show()
        self._fit()
        self._on_text_changed()

    def _detach(self, chip: AttachmentChip) -> None:
        self._attachments.remove(chip)
        chip.hide()
        chip.deleteLater()
        self._fit()
        self._on_text_changed()

    def _on_text_changed(self) -> None:
        self._refresh_button()
        self.text_changed.emit()

    def _on_send_requested(self, keep: bool) -> None:
        if self._state == "busy":
            return
        text = self.text()
        if not text.strip():
            return
        if not keep:
            self.set_text("")
        self.send_requested.emit(text)

    def _on_button_clicked(self) -> None:
        if self._state == "busy":
            self.stop_requested.emit()
        else:
            self._on_send_requested(False)

    def _refresh_button(self) -> None:
        if self._state == "busy":
            self._button.set_content(self.tr("Stop"), "square", "Esc", "solid")
            self._button.setEnabled(True)
        else:
            ready = bool(self._attachments) or not self._edit.document().isEmpty()
            self._button.set_content(self.tr("Send"), "arrow-up", "↵", "primary" if ready else "solid")
            self._button.setEnabled(ready)
        self._place()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self._state == "busy":
            self.stop_requested.emit()
            return
        super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if self._box.contains(event.position()):
            self.focus()

    def _extra(self) -> int:
        """Pixels above the one-line height: more lines, and the row of attachments."""
        one_line = self._edit.fontMetrics().lineSpacing() + 2
        rows = (CHIP_HEIGHT + 10) if self._attachments else 0
        return max(0, self._edit.wanted_height() - one_line) + rows

    def sizeHint(self) -> QSize:
        return QSize(600, 104 + self._extra() + _FOOT)

    def minimumSizeHint(self) -> QSize:
        return QSize(300, 104 + self._extra() + _FOOT)

    def _fit(self) -> None:
        self.setFixedHeight(self.sizeHint().height())
        self.updateGeometry()
        self._place()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def showEvent(self, event: QShowEvent) -> None:
        self._fit()

    def _place(self) -> None:
        width = min(COLUMN, max(200, self.width() - 2 * _SIDE))
        left = (self.width() - width) / 2
        height = 104 + self._extra()
        self._box = QRectF(left, self.height() - _FOOT - height, width, height)
        top = self._box.top() + _TOP
        x = left + 16
        for chip in self._attachments:
            chip.move(round(x), round(self._box.top() + 12))
            x += chip.width() + 8
        if self._attachments:
            top += CHIP_HEIGHT + 10
        self._edit.setGeometry(round(left + 18), round(top), round(width - 36), self._edit.wanted_height())
        row = self._box.bottom() - (104 - _ROW)
        x = left + 14
        button_width = max(106, self._button.sizeHint().width())
        end = self._box.right() - 12 - button_width - 8
        for label in (self._sampling, self._system):
            chip_width = min(label.sizeHint().width(), max(44, round(end - x)))
            label.setVisible(chip_width >= min(_LEAST_CHIP, label.sizeHint().width()))
            label.setGeometry(round(x), round(row + 3), chip_width, 26)
            x += chip_width + 8
        self._button.setGeometry(round(self._box.right() - 12 - button_width), round(row), button_width, 32)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme.color("bg"))
        paint.begin(painter)
        paint.rounded(painter, self._box, 14, "raised", "line2")
