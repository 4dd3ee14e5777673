"""TranscriptView: the virtualised column of messages. Widgets exist for what is on screen and one screen around it.

Additions to the agreed surface: clear(), find_step(step), clear_find(), set_think_figures(id, seconds, tokens),
edit_message(id), toggle_think(), shut_down(). Copying is done here (the source text goes to the clipboard); copy_requested
tells others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from PySide6.QtCore import QEvent, QRect, Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication, QKeyEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QWidget

from app import theme
from app.chat.blocks.base import BlockContext
from app.chat.blocks.text_view import TextView
from app.chat.height_index import HeightIndex, estimate
from app.chat.jump_pill import JumpPill
from app.chat.message_view import GUTTER, MessageView
from app.chat.render_pool import RenderPool
from app.store.rows import MessageRow

COLUMN = 720
_SIDE = 58
_TOP = 23
_FOOT = 4
_STICK = 24
"""Pixels from the end within which the view counts as being at the end."""


class TranscriptView(QAbstractScrollArea):
    """Sticks to the end only while the user is there; otherwise the first visible message stays where it is."""

    copy_requested = Signal(int)
    regenerate_requested = Signal(int)
    edit_requested = Signal(int, str)
    delete_requested = Signal(int)
    continue_requested = Signal(int)
    branch_requested = Signal(int, int)
    error_action_requested = Signal(int)
    telemetry_requested = Signal(int)
    link_clicked = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(self.tr("Transcript"))
        self._rows: list[MessageRow] = []
        self._where: dict[int, int] = {}
        self._heights = HeightIndex()
        self._views: dict[int, MessageView] = {}
        self._think: dict[int, tuple[float | None, int | None]] = {}
        self._prefill: dict[int, tuple[int, int, float | None]] = {}
        self._unmeasured: set[int] = set()
        self._seen_from: int | None = None
        self._stick = True
        self._placing = False
        self._column = 0
        self._needle = ""
        self._hits: list[int] = []
        self._hit = -1
        self._pool = RenderPool(self)
        self._context = BlockContext(self._pool, self.link_clicked.emit)
        self._pill = JumpPill(self.tr("Jump to latest"), self)
        self._pill.clicked.connect(self.scroll_to_end)
        self._later = QTimer(self)
        self._later.setSingleShot(True)
        self._later.setInterval(0)
        self._later.timeout.connect(self._place)
        bar = self.verticalScrollBar()
        bar.valueChanged.connect(self._on_bar_value_changed)
        bar.setSingleStep(48)
        theme.hub().changed.connect(self._on_theme_changed)

    # What is shown

    def set_messages(self, rows: Iterable[MessageRow]) -> None:
        """Show another conversation, at its end."""
        self._drop_views(list(self._views))
        self._rows = list(rows)
        self._where = {row.id: i for i, row in enumerate(self._rows)}
        self._think, self._prefill = {}, {}
        self._stick = True
        self.clear_find()
        self._measure_anew()

    def clear(self) -> None:
        """Show nothing."""
        self.set_messages(())

    def append(self, row: MessageRow) -> None:
        """Add a message at the end and go there."""
        self._where[row.id] = len(self._rows)
        self._rows.append(row)
        self._heights.append(estimate(row, self._column or COLUMN))
        self._stick = self._stick or row.role == "user"
        self._later.start()

    def update_message(self, row: MessageRow) -> None:
        """Show another state of a message; unknown ids are ignored."""
        i = self._where.get(row.id)
        if i is None:
            return
        self._rows[i] = row
        view = self._views.get(row.id)
        if view is not None:
            view.set_row(row)
            self._measure(i, view)
        else:
            self._heights.set(i, estimate(row, self._column or COLUMN))
        self._later.start()

    def append_text(self, message_id: int, text: str) -> None:
        """New text of a running answer."""
        i = self._where.get(message_id)
        if i is None:
            return
        row = self._rows[i]
        self._rows[i] = replace(row, text=row.text + text)
        view = self._views.get(message_id)
        if view is not None:
            view.append_text(text)
            self._measure(i, view)
            self._place()

    def set_prefill(self, message_id: int, done: int, total: int, tok_s: float | None) -> None:
        """Progress of reading the prompt of a running answer."""
        self._prefill[message_id] = (done, total, tok_s)
        view = self._views.get(message_id)
        if view is not None:
            view.set_prefill(done, total, tok_s)

    def set_live_figures(self, message_id: int, tok_s: float | None, n_tokens: int) -> None:
        """Speed and length of a running answer."""
        i = self._where.get(message_id)
        if i is not None:
            figures = replace(self._rows[i].figures, decode_tok_s=tok_s, n_tokens=n_tokens)
            self._rows[i] = replace(self._rows[i], figures=figures)
        view = self._views.get(message_id)
        if view is not None:
            view.set_live_figures(tok_s, n_tokens)

    def set_think_figures(self, message_id: int, seconds: float | None, tokens: int | None) -> None:
        """What the think fold of an answer says about itself."""
        self._think[message_id] = (seconds, tokens)
        view = self._views.get(message_id)
        if view is not None:
            view.set_think_figures(seconds, tokens)

    def set_seen_from(self, message_id: int | None) -> None:
        """The model is given the chat from this message on, which a line above it says; None, or an unknown id: all of it."""
        self._seen_from = message_id
        for one, view in self._views.items():
            if view.set_boundary(self._ends_unseen(one)):
                self._measure(self._where[one], view)
        self._later.start()

    def _ends_unseen(self, message_id: int) -> bool:
        """Whether this is the last message that the model is not given."""
        after = self._where[message_id] + 1
        return self._seen_from is not None and after < len(self._rows) and self._rows[after].id == self._seen_from

    def edit_message(self, message_id: int) -> None:
        """Open a user message for editing in its place."""
        i = self._where.get(message_id)
        if i is None:
            return
        self._show_index(i)
        self._views[message_id].start_editing()

    def toggle_think(self) -> None:
        """Fold or unfold what was thought in the answers on screen."""
        for view in list(self._views.values()):
            view.toggle_think()

    def scroll_to_end(self) -> None:
        """Go to the end and stay there."""
        self._stick = True
        self._place()

    # Search

    def find(self, text: str) -> int:  # type: ignore[override]
        """Mark a text and go to its last message that holds it; returns how many messages do."""
        self._needle = text
        wanted = text.casefold()
        self._hits = [i for i, row in enumerate(self._rows) if wanted and wanted in row.text.casefold()]
        self._hit = len(self._hits)
        for view in self._views.values():
            view.set_needle(text)
        if self._hits:
            self.find_step(-1)
        return len(self._hits)

    def find_step(self, step: int) -> tuple[int, int]:
        """Go to the next (+1) or previous (-1) message that holds the text; returns (index from 1, count)."""
        if not self._hits:
            return (0, 0)
        self._hit = (self._hit + step) % len(self._hits)
        self._show_index(self._hits[self._hit])
        return (self._hit + 1, len(self._hits))

    def clear_find(self) -> None:
        """Take the marks away."""
        self._needle, self._hits, self._hit = "", [], -1
        for view in self._views.values():
            view.set_needle("")

    def _show_index(self, i: int) -> None:
        self._stick = False
        for _ in range(3):
            self.verticalScrollBar().setValue(self._heights.offset(i))
            self._place()
            if self.verticalScrollBar().value() == min(self._heights.offset(i), self.verticalScrollBar().maximum()):
                break
        self._later.start()

    # Layout

    def column_rect(self) -> QRect:
        """The text column in viewport coordinates; composer and cards align with it."""
        width = self.width()
        column = min(COLUMN, max(240, width - 2 * _SIDE))
        return QRect((width - column) // 2, 0, column, self.viewport().height())

    def live_widgets(self) -> int:
        """How many message widgets exist."""
        return len(self._views)

    def selectable_views(self) -> list[TextView]:
        """All texts that exist, from top to bottom: a selection may reach over several of them."""
        ids = sorted(self._views, key=lambda message_id: self._where[message_id])
        return [view for message_id in ids for view in self._views[message_id].text_views()]

    @property
    def pending(self) -> int:
        """Blocks, formulas and colours that are still being made."""
        return self._pool.pending + sum(view.pending for view in self._views.values())

    def _measure_anew(self) -> None:
        self._column = self.column_rect().width()
        self._heights = HeightIndex(estimate(row, self._column) for row in self._rows)
        for message_id, view in self._views.items():
            self._measure(self._where[message_id], view)
        self._place()

    def _measure(self, i: int, view: MessageView) -> None:
        height = view.layout_width(self._column)
        self._heights.set(i, height)
        view.resize(self._column + GUTTER, height)

    def _place(self) -> None:
        """Create, measure and move the widgets around the visible part; keep the anchor where it is."""
        if self._placing or not self._column:
            return
        self._placing = True
        try:
            self._place_once()
        finally:
            self._placing = False
        self._refresh_pill()

    def _place_once(self) -> None:
        bar = self.verticalScrollBar()
        screen = self.viewport().height()
        top = bar.value()
        anchor = self._heights.index_at(top - _TOP) if self._rows else 0
        inside = top - self._heights.offset(anchor)
        for message_id in self._unmeasured & self._views.keys():
            self._measure(self._where[message_id], self._views[message_id])
        self._unmeasured.clear()
        first = last = 0
        for _ in range(6):
            maximum = max(0, self._heights.total() + _TOP + _FOOT - screen)
            top = maximum if self._stick else min(maximum, self._heights.offset(anchor) + inside) if self._rows else 0
            first = self._heights.index_at(top - screen - _TOP)
            last = self._heights.index_at(top + 2 * screen)
            if not self._ensure(first, last):
                break
        self._drop_views([i for i in self._views if not first <= self._where[i] <= last])
        maximum = max(0, self._heights.total() + _TOP + _FOOT - screen)
        top = maximum if self._stick else min(maximum, max(0, top))
        bar.setPageStep(screen)
        bar.setRange(0, maximum)
        bar.setValue(top)
        left = self.column_rect().left() - GUTTER
        for message_id, view in self._views.items():
            view.move(left, _TOP + self._heights.offset(self._where[message_id]) - top)
            if view.isHidden():
                view.show()

    def _ensure(self, first: int, last: int) -> bool:
        """Make the widgets of a range; True if a height turned out to be another than estimated."""
        changed = False
        for i in range(first, min(last + 1, len(self._rows))):
            row = self._rows[i]
            if row.id in self._views:
                continue
            view = self._make(row)
            view.set_boundary(self._ends_unseen(row.id))
            before = self._heights[i]
            self._measure(i, view)
            changed = changed or self._heights[i] != before
        return changed

    def _make(self, row: MessageRow) -> MessageView:
        view = MessageView(row, self._context, self.viewport())
        self._views[row.id] = view
        if row.id in self._think:
            view.set_think_figures(*self._think[row.id])
        if row.id in self._prefill and row.status == "streaming":
            view.set_prefill(*self._prefill[row.id])
        if self._needle:
            view.set_needle(self._needle)
        view.height_changed.connect(lambda: self._on_view_height_changed(row.id))
        view.action_requested.connect(lambda action: self._on_view_action(row.id, action))
        view.branch_requested.connect(lambda step: self.branch_requested.emit(row.id, step))
        view.edited.connect(lambda text: self.edit_requested.emit(row.id, text))
        return view

    def _drop_views(self, message_ids: list[int]) -> None:
        for message_id in message_ids:
            view = self._views.pop(message_id)
            view.hide()
            view.deleteLater()

    def _refresh_pill(self) -> None:
        bar = self.verticalScrollBar()
        away = not self._stick and bar.maximum() - bar.value() > 200
        if away != self._pill.isVisible():
            self._pill.setVisible(away)
            self._pill.raise_()
        size = self._pill.sizeHint()
        self._pill.setGeometry(
            (self.width() - size.width()) // 2, self.height() - size.height() - 12, size.width(), size.height()
        )

    # Events

    def _on_view_height_changed(self, message_id: int) -> None:
        view = self._views.get(message_id)
        if view is not None and not self._placing:
            self._unmeasured.add(message_id)
            self._later.start()

    def _on_view_action(self, message_id: int, action: str) -> None:
        signals = {
            "regenerate": self.regenerate_requested,
            "delete": self.delete_requested,
            "continue": self.continue_requested,
            "error": self.error_action_requested,
            "telemetry": self.telemetry_requested,
        }
        if action == "copy":
            QGuiApplication.clipboard().setText(self._rows[self._where[message_id]].text)
            self.copy_requested.emit(message_id)
        else:
            signals[action].emit(message_id)

    def _on_bar_value_changed(self, value: int) -> None:
        if not self._placing:
            self._stick = value >= self.verticalScrollBar().maximum() - _STICK
            self._place()

    def _on_theme_changed(self) -> None:
        for view in self._views.values():
            view.restyle()
        self._measure_anew()
        self.viewport().update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        bar = self.verticalScrollBar()
        if event.key() == Qt.Key.Key_Home:
            bar.setValue(0)
        elif event.key() == Qt.Key.Key_End:
            self.scroll_to_end()
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        column = self.column_rect().width()
        if column != self._column:
            self._measure_anew()
        else:
            self._place()

    def viewportEvent(self, event: QEvent) -> bool:
        if isinstance(event, QPaintEvent):
            QPainter(self.viewport()).fillRect(event.rect(), theme.color("bg"))
            return True
        return super().viewportEvent(event)

    def shut_down(self) -> None:
        """End the worker; call before the window goes."""
        self._pool.close()
