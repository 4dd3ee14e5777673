"""PlacementPage: header, summary, filters, the board, and beside it the panel with the inspector and the pending changes.

Its parts are public; controllers of `windows` wire their signals to the desk. The page itself only lays out, shows and hides.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QStackedWidget, QVBoxLayout, QWidget

from app import theme
from app.placement.check_pane import CheckPane
from app.placement.command_pane import CommandPane
from app.placement.compare_pane import ComparePane
from app.placement.context_pane import ContextPane
from app.placement.filter_bar import FilterBar
from app.placement.header import PlacementHeader
from app.placement.inspector import Inspector
from app.placement.notice_strip import NoticeStrip
from app.placement.pending_bar import PendingBar
from app.placement.state_card import StateCard
from app.placement.summary_bar import SummaryBar
from app.widgets import paint
from app.widgets.toast import Toast

NARROW_PANEL, WIDE_PANEL = 272, 420
_LEAST_BOARD = 380
_MINIMUM = (600, 360)


class PlacementPage(QWidget):
    """set_pane(name) chooses what the panel shows. key_pressed(QKeyEvent key as int) for keys that nothing on the page took."""

    key_pressed = Signal(int)

    def __init__(self, board: QWidget, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.board = board
        self.header = PlacementHeader()
        self.summary = SummaryBar()
        self.strip = NoticeStrip()
        self.filters = FilterBar()
        self.state = StateCard()
        self.inspector = Inspector()
        self.context = ContextPane()
        self.compare = ComparePane()
        self.check = CheckPane()
        self.command = CommandPane()
        self.pending = PendingBar()
        self._panes: dict[str, QWidget] = {
            "selection": self.inspector,
            "context": self.context,
            "compare": self.compare,
            "check": self.check,
            "command": self.command,
        }
        self._pane = "selection"
        self._has_model = False
        self._lay_out()
        self.toast = Toast(self._left)
        self.setMinimumSize(*_MINIMUM)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setAccessibleName(self.tr("Placement"))
        theme.hub().changed.connect(self.update)
        self.show_board(shown=False)

    def _lay_out(self) -> None:
        self._stack = QStackedWidget()
        for pane in self._panes.values():
            self._stack.addWidget(pane)
        self._panel = _Panel(self._stack, self.pending)
        self._tools = QWidget()
        tools = QVBoxLayout(self._tools)
        tools.setContentsMargins(0, 0, 0, 0)
        tools.setSpacing(14)
        tools.addWidget(self.summary)
        tools.addWidget(self.strip)
        tools.addWidget(self.filters)
        tools.addWidget(self.board, 1)
        self._left = QStackedWidget()
        self._left.addWidget(self.state)
        self._left.addWidget(self._tools)
        holder = QWidget()
        inner = QVBoxLayout(holder)
        inner.setContentsMargins(16, 13, 16, 16)
        inner.addWidget(self._left)
        body = QHBoxLayout()
        body.setContentsMargins(0, 0, 0, 0)
        body.setSpacing(0)
        body.addWidget(holder, 1)
        body.addWidget(self._panel)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.header)
        column.addLayout(body, 1)

    def show_board(self, *, shown: bool) -> None:
        """The board with all around it, or the card that says why there is none."""
        self._has_model = shown
        self._left.setCurrentWidget(self._tools if shown else self.state)
        self._fit()

    def set_pane(self, pane: str) -> None:
        """What the panel shows."""
        self._pane = pane
        self._stack.setCurrentWidget(self._panes[pane])
        self.header.set_pane(pane)
        self._fit()

    @property
    def pane(self) -> str:
        """What the panel shows."""
        return self._pane

    def _fit(self) -> None:
        """The panel takes what its pane needs as far as the board keeps room; a narrow page is all board, unless a pane was asked
        for."""
        wanted = NARROW_PANEL if self._pane == "selection" else WIDE_PANEL
        room = self.width() - _LEAST_BOARD
        shown = self._has_model and (room >= NARROW_PANEL or self._pane != "selection")
        self._panel.setVisible(shown)
        self._panel.setFixedWidth(max(NARROW_PANEL, min(wanted, room)))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        plain = event.modifiers() in (Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.KeypadModifier)
        if plain and self._has_model:
            self.key_pressed.emit(event.key())
        super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit()

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), theme.color("bg"))


class _Panel(QWidget):
    def __init__(self, content: QWidget, foot: QWidget) -> None:
        super().__init__()
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Expanding)
        column = QVBoxLayout(self)
        column.setContentsMargins(1, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(content, 1)
        column.addWidget(foot)
        theme.hub().changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme.color("panel"))
        paint.line(painter, 0.5, 0, 0.5, self.height())
