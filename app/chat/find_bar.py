"""FindBar: search in the open conversation: a box, the count, previous and next."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QWidget

from app import theme
from app.widgets import paint
from app.widgets.buttons import IconButton
from app.widgets.elided_label import ElidedLabel


class FindBar(QWidget):
    """Emits what to look for and which way to step; Escape closes it."""

    text_changed = Signal(str)
    step_requested = Signal(int)
    closed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._edit = QLineEdit()
        self._edit.setObjectName("bare")
        self._edit.setPlaceholderText(self.tr("Find in chat"))
        self._edit.setAccessibleName(self.tr("Find in chat"))
        self._count = ElidedLabel("", 12, 400, "text3")
        self._count.setFixedWidth(64)
        back = IconButton("chevron-up", self.tr("Previous"), size=24, icon_size=14)
        forward = IconButton("chevron-down", self.tr("Next"), size=24, icon_size=14)
        close = IconButton("x", self.tr("Close"), size=24, icon_size=14)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(14, 6, 8, 6)
        layout.setSpacing(4)
        for widget in (self._edit, self._count, back, forward, close):
            layout.addWidget(widget)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(120)
        self._timer.timeout.connect(lambda: self.text_changed.emit(self._edit.text()))
        self._edit.textChanged.connect(lambda _text: self._timer.start())
        back.clicked.connect(lambda: self.step_requested.emit(-1))
        forward.clicked.connect(lambda: self.step_requested.emit(1))
        close.clicked.connect(self.closed)
        theme.hub().changed.connect(self.update)
        self.setFixedSize(340, 40)
        self.hide()

    def open(self) -> None:
        """Show the bar with the keyboard in it."""
        self.show()
        self.raise_()
        self._edit.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self._edit.selectAll()

    def set_count(self, index: int, count: int) -> None:
        """E.g. `2 of 7`; `none` when nothing was found."""
        if not self._edit.text():
            self._count.set_text("")
        else:
            self._count.set_text(self.tr("{i} of {n}").format(i=index, n=count) if count else self.tr("none"))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.closed.emit()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.step_requested.emit(1 if event.modifiers() & Qt.KeyboardModifier.ShiftModifier else -1)
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.rounded(painter, QRectF(self.rect()), 10, "raised", "line2")
