"""Toast: a sentence at the bottom of its parent for background results, with at most one action such as Undo."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, QRectF, Qt, QTimer
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

from app import theme
from app.widgets import paint
from app.widgets.buttons import IconButton, LinkButton

SHOWN_MS = 6000
READING_MS = 70
"""A character of a long sentence."""
MOST_WIDTH = 680


class Toast(QWidget):
    """Stays for six seconds, longer for a long sentence and while the mouse is on it. A new one replaces the one shown."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._owner = parent
        self._on_action: Callable[[], None] | None = None
        # Plain text, so that nothing a model or a file name says is read as markup; whole, since it says what to do.
        self._label = QLabel()
        self._label.setTextFormat(Qt.TextFormat.PlainText)
        self._label.setWordWrap(True)
        self._label.setFont(theme.font(13, 500))
        self._action = LinkButton("")
        close = IconButton("x", self.tr("Close"), size=24, icon_size=14)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(16, 8, 8, 8)
        layout.setSpacing(14)
        layout.addWidget(self._label, 1)
        layout.addWidget(self._action)
        layout.addWidget(close)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SHOWN_MS)
        self._timer.timeout.connect(self._on_timer_timeout)
        close.clicked.connect(self.hide)
        self._action.clicked.connect(self._on_action_clicked)
        parent.installEventFilter(self)
        theme.hub().changed.connect(self.update)
        self.hide()

    def show_message(self, text: str, action_text: str | None = None, on_action: Callable[[], None] | None = None) -> None:
        """Show `text`; on_action is called once if the action is pressed while the toast is shown."""
        self._label.setText(text)
        self.setAccessibleName(text)
        self._on_action = on_action
        self._action.setVisible(action_text is not None)
        self._action.setText(action_text or "")
        self._action.setAccessibleName(action_text or "")
        self._action.updateGeometry()
        self._place()
        self.show()
        self.raise_()
        self._timer.start(max(SHOWN_MS, READING_MS * len(text)))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize and not self.isHidden():
            self._place()
        return super().eventFilter(watched, event)

    def _place(self) -> None:
        parent = self._owner
        buttons = 90 + (0 if self._action.isHidden() else self._action.sizeHint().width())
        wanted = round(paint.text_width(self._label.text(), 13, 500)) + buttons
        width = min(parent.width() - 32, MOST_WIDTH, max(320, wanted))
        layout = self.layout()
        height = max(44, layout.heightForWidth(width) if layout is not None else 0)
        self.setGeometry((parent.width() - width) // 2, parent.height() - height - 12, width, height)

    def _on_timer_timeout(self) -> None:
        if self.underMouse():
            self._timer.start()
        else:
            self.hide()

    def _on_action_clicked(self) -> None:
        action, self._on_action = self._on_action, None
        self.hide()
        if action is not None:
            action()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.rounded(painter, QRectF(self.rect()), 10, "overlay", "line2")
