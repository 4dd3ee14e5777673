"""ChatPage: list, header, transcript, composer and side panel laid out beside each other.

Its parts are public (`list`, `header`, `transcript`, `trouble`, `context_card`, `composer`, `side_panel`, `empty`, `toast`): the
application wires their signals to operations. The page itself only does what needs no data: find, side panel, empty state,
drop of a file.
"""

from __future__ import annotations

from PySide6.QtCore import QFileInfo, QUrl, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from app import theme
from app.chat.chat_list_view import ChatListView
from app.chat.composer import Composer
from app.chat.context_card import ContextCard
from app.chat.empty_state import EmptyState
from app.chat.find_bar import FindBar
from app.chat.header import ChatHeader
from app.chat.tab_order import sort_messages
from app.chat.transcript_view import TranscriptView
from app.monitors.side_panel import SidePanel
from app.placement.notice_strip import NoticeStrip
from app.widgets.toast import Toast

PANEL_MIN_WIDTH = 1200
"""Below this window width (rail included) the side panel gives its room to the chat."""
_RAIL = 72
_MINIMUM = (600, 360)


class ChatPage(QWidget):
    """set_conversation_shown(False) shows the empty state. file_dropped carries the path of a dropped .gguf file or folder.
    open_file_requested comes from the empty state without a model."""

    file_dropped = Signal(str)
    open_file_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.list = ChatListView()
        self.header = ChatHeader()
        self.transcript = TranscriptView()
        self.empty = EmptyState()
        self.trouble = NoticeStrip()
        self.context_card = ContextCard()
        self.composer = Composer()
        self.side_panel = SidePanel()
        self._panel_wanted = True
        self._stack = QStackedWidget()
        self._stack.addWidget(self.empty)
        self._stack.addWidget(self.transcript)
        self._middle = QWidget()
        column = QVBoxLayout(self._middle)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.header)
        column.addWidget(self._stack, 1)
        trouble = QHBoxLayout()
        trouble.setContentsMargins(24, 4, 24, 4)
        trouble.addWidget(self.trouble)
        column.addLayout(trouble)
        column.addWidget(self.context_card)
        column.addWidget(self.composer)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(self.list)
        row.addWidget(self._middle, 1)
        row.addWidget(self.side_panel)
        self._find = FindBar(self._middle)
        self.toast = Toast(self._stack)
        # An explicit minimum: the layout's own would count the side panel, which hides before the window gets that narrow.
        self.setMinimumSize(*_MINIMUM)
        self.setAcceptDrops(True)
        self.header.set_rename_enabled(False)
        self._connect()

    def _connect(self) -> None:
        self.header.side_panel_toggled.connect(self.set_side_panel_wanted)
        self.header.rename_requested.connect(self.list.rename_current)
        self.header.model_changed.connect(self.empty.set_model_name)
        self.empty.model_requested.connect(self.header.model_clicked)
        self.empty.open_file_requested.connect(self.open_file_requested)
        self.empty.example_chosen.connect(self._on_example_chosen)
        self._find.text_changed.connect(self._on_find_text_changed)
        self._find.step_requested.connect(lambda step: self._find.set_count(*self.transcript.find_step(step)))
        self._find.closed.connect(self.close_find)
        theme.hub().changed.connect(self.update)

    def set_conversation_shown(self, shown: bool) -> None:
        """Transcript, or the empty state."""
        self._stack.setCurrentWidget(self.transcript if shown else self.empty)
        self.header.set_rename_enabled(shown)

    def set_list_shown(self, shown: bool) -> None:
        """Show or hide the chat list."""
        self.list.setVisible(shown)

    def focusNextPrevChild(self, next: bool) -> bool:
        sort_messages(self.transcript)
        return super().focusNextPrevChild(next)

    def set_side_panel_wanted(self, wanted: bool) -> None:
        """Show the side panel where there is room for it."""
        self._panel_wanted = wanted
        self.header.set_side_panel_shown(wanted)
        self._fit_panel()

    def toggle_side_panel(self) -> None:
        """As the header's button."""
        self.set_side_panel_wanted(not self._panel_wanted)

    def open_find(self) -> None:
        """Search in the conversation."""
        if self._stack.currentWidget() is self.transcript:
            self._find.open()
            self._place_find()

    def close_find(self) -> None:
        """Leave the search."""
        self._find.hide()
        self.transcript.clear_find()
        self.composer.focus()

    def _on_find_text_changed(self, text: str) -> None:
        count = self.transcript.find(text)
        self._find.set_count(count, count)

    def _on_example_chosen(self, prompt: str) -> None:
        self.composer.set_text(prompt)
        self.composer.focus()

    def _fit_panel(self) -> None:
        self.side_panel.setVisible(self._panel_wanted and self.width() + _RAIL >= PANEL_MIN_WIDTH)

    def _place_find(self) -> None:
        self._find.move(self._middle.width() - self._find.width() - 20, self.header.height() + 10)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit_panel()
        self._place_find()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if _gguf_path(event.mimeData().urls()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        path = _gguf_path(event.mimeData().urls())
        if path:
            event.acceptProposedAction()
            self.file_dropped.emit(path)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), theme.color("bg"))

    def shut_down(self) -> None:
        """End what runs beside the window."""
        self.transcript.shut_down()


def _gguf_path(urls: list[QUrl]) -> str:
    """The first local .gguf file or folder of a drop, "" for anything else."""
    local = (url.toLocalFile() for url in urls if url.isLocalFile())
    return next((path for path in local if path.lower().endswith(".gguf") or QFileInfo(path).isDir()), "")
