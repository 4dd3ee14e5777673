"""MonitorsPage: the header, what there is to say about the machine, and the dashboard. Plain values in, signals out.

Its parts are public; `windows.monitors_controller` fills them. The page itself only lays out.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget

from app import theme
from app.monitors.banner import Banner
from app.monitors.board import MonitorsBoard
from app.monitors.board_layout import MARGIN
from app.monitors.header import MonitorsHeader
from app.widgets.toast import Toast

_MINIMUM = (480, 320)


class MonitorsPage(QWidget):
    """pause_requested, record_requested: Space and R. told: cards of which the strip says what is amiss, as `GPU 2`."""

    pause_requested = Signal()
    record_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.header = MonitorsHeader()
        self.mode = Banner()
        self.alarm = Banner()
        self.board = MonitorsBoard()
        self._strip: QWidget | None = None
        self.told: frozenset[str] = frozenset()
        self._lay_out()
        self.toast = Toast(self._scroll)
        self.setMinimumSize(*_MINIMUM)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setAccessibleName(self.tr("Monitors"))
        self.header.pause_clicked.connect(self.pause_requested)
        self.header.record_clicked.connect(self.record_requested)
        self.board.resized.connect(self.board.setFixedHeight)
        theme.hub().changed.connect(self.update)

    def _lay_out(self) -> None:
        self._notices = QVBoxLayout()
        self._notices.setContentsMargins(MARGIN, 0, MARGIN, 0)
        self._notices.setSpacing(8)
        self._notices.addWidget(self.mode)
        self._notices.addWidget(self.alarm)
        self._scroll = _Scroll(self.board)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.header)
        column.addLayout(self._notices)
        column.addWidget(self._scroll, 1)

    def set_strip(self, widget: QWidget) -> None:
        """A place at the top of the page for what the machine says about itself."""
        if self._strip is not None:
            self._notices.removeWidget(self._strip)
            self._strip.deleteLater()
        self._strip = widget
        self._notices.insertWidget(0, widget)

    def fit_notices(self) -> None:
        """Call after a notice came or went: they stand clear of the header."""
        shown = [self.mode, self.alarm, *([] if self._strip is None else [self._strip])]
        top = 12 if any(not widget.isHidden() for widget in shown) else 0
        self._notices.setContentsMargins(MARGIN, top, MARGIN, 0)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.modifiers() == Qt.KeyboardModifier.NoModifier:
            if event.key() == Qt.Key.Key_Space:
                self.pause_requested.emit()
                return
            if event.key() == Qt.Key.Key_R:
                self.record_requested.emit()
                return
        super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(event.rect(), theme.color("bg"))


class _Scroll(QScrollArea):
    """As wide as the page; the board scrolls up and down where it is higher."""

    def __init__(self, board: MonitorsBoard) -> None:
        super().__init__()
        self._board = board
        self.setWidget(board)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self.setObjectName("plain")

    def resizeEvent(self, event: QResizeEvent) -> None:
        # As wide as without the scroll bar, which lies on the board's margin: cards keep their places when it comes.
        self._board.setFixedWidth(self.width())
        self._board.set_seen_height(self.height())
        super().resizeEvent(event)
