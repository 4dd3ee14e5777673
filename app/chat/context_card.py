"""ContextCard: stands above the composer when a message does not fit into the context: what would be cut, and three ways out."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.widgets import paint
from app.widgets.buttons import IconButton, PushButton
from app.widgets.format import count_text, short_count
from app.widgets.icon import draw_icon

_COLUMN = 748
_SIDE = 44
_HEIGHT = 112


class ContextCard(QWidget):
    """Plain figures in, one signal out for what was chosen."""

    trim_requested = Signal()
    new_chat_requested = Signal()
    longer_requested = Signal()
    dismissed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedHeight(_HEIGHT + 8)
        self._title = ""
        self._detail = ""
        self._box = QRectF()
        self._trim = PushButton(self.tr("Trim oldest"), "primary", self, height=30)
        self._new = PushButton(self.tr("Start a new chat"), parent=self, height=30)
        self._longer = PushButton(self.tr("Load with a longer context"), parent=self, height=30)
        self._close = IconButton("x", self.tr("Not now"), self, size=26, icon_size=14)
        self._trim.clicked.connect(self.trim_requested)
        self._new.clicked.connect(self.new_chat_requested)
        self._longer.clicked.connect(self.longer_requested)
        self._close.clicked.connect(self.dismissed)
        theme.hub().changed.connect(self.update)
        self.hide()

    def show_overflow(self, n_tokens: int, n_ctx: int, n_left_out: int, longer: int, *, is_new: bool) -> None:
        """n_left_out: messages that trimming leaves out, 0 when it does not help. longer: a context that would do, 0 for none.
        is_new: it is the first message of a chat."""
        self._title = self.tr("This leaves no room for an answer: {n} of {total} tokens").format(
            n=count_text(n_tokens), total=count_text(n_ctx)
        )
        if n_left_out == 1:
            self._detail = self.tr("Trimming leaves the oldest message out of what the model is given. It stays in the chat.")
        elif n_left_out:
            self._detail = self.tr(
                "Trimming leaves the {n} oldest messages out of what the model is given. They stay in the chat."
            ).format(n=count_text(n_left_out))
        else:
            self._detail = self.tr("The message alone is too long, so that nothing can be trimmed. Shorten it.")
            if longer:
                self._detail = self.tr("The message alone is too long, so that nothing can be trimmed.")
        self._trim.setVisible(n_left_out > 0)
        self._new.setVisible(not is_new and n_left_out > 0)
        self._longer.setVisible(longer > 0)
        label = self.tr("Load with {n} of context").format(n=short_count(longer))
        self._longer.set_content(label, "", "", "secondary" if n_left_out else "primary")
        self.setAccessibleName(f"{self._title}. {self._detail}")
        self._place()
        self.show()
        self._first_button().setFocus(Qt.FocusReason.OtherFocusReason)

    def _first_button(self) -> QWidget:
        return next((one for one in (self._trim, self._longer) if not one.isHidden()), self._close)

    def sizeHint(self) -> QSize:
        return QSize(600, _HEIGHT + 8)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.dismissed.emit()
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def _place(self) -> None:
        width = min(_COLUMN, max(200, self.width() - 2 * _SIDE))
        self._box = QRectF((self.width() - width) / 2, 4, width, _HEIGHT)
        x = round(self._box.left()) + 44
        for button in (self._trim, self._longer, self._new):
            if not button.isHidden():
                button.setGeometry(x, 70, button.sizeHint().width(), 30)
                x += button.width() + 8
        self._close.move(round(self._box.right()) - 34, 12)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme.color("bg"))
        paint.begin(painter)
        paint.rounded(painter, self._box, 12, "surface", "line2")
        left = self._box.left()
        draw_icon(painter, "circle-alert", left + 16, 18, 16, "warn")
        room = self._box.width() - 44
        paint.text(painter, left + 44, 31, self._title, 13, 600, max_width=room - 44)
        paint.text(painter, left + 44, 53, self._detail, 12, 400, "text2", max_width=room - 14)
