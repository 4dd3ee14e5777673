"""MessageView: one message of the transcript: the user's bubble, or the answer with its blocks, figures and buttons."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QEvent, QPoint, QRectF, Qt, Signal
from PySide6.QtGui import QEnterEvent, QFocusEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.chat.blocks.base import BlockContext
from app.chat.blocks.block_column import BlockColumn
from app.chat.blocks.text_view import TextView
from app.chat.error_card import ErrorCard
from app.chat.message_actions import SIDE, MessageActions
from app.chat.message_editor import MessageEditor
from app.chat.plain import has_hidden
from app.chat.prefill_bar import HEIGHT as PREFILL_HEIGHT
from app.chat.prefill_bar import PrefillBar
from app.chat.stats_bar import HEIGHT as STATS_HEIGHT
from app.chat.stats_bar import StatsBar
from app.chat.user_bubble import UserBubble
from app.store.rows import MessageRow
from app.widgets import paint

GUTTER = 38
"""Left of the text column, for the avatar."""
_AFTER_USER = 16
_AFTER_ASSISTANT = 28
_GAP = 14
_BOUNDARY = 40
_LEAD = 5
"""Puts a first line of text on the middle of the avatar."""


class MessageView(QWidget):
    """set_row() shows a row, append_text() adds to it; layout_width(column) returns the height, distance below included."""

    height_changed = Signal()
    action_requested = Signal(str)
    branch_requested = Signal(int)
    edited = Signal(str)

    def __init__(self, row: MessageRow, context: BlockContext, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._row = row
        self._text = ""
        self._context = context
        self._hovered = False
        self._needle = ""
        self._bubble: UserBubble | None = None
        self._column: BlockColumn | None = None
        self._stats: StatsBar | None = None
        self._error: ErrorCard | None = None
        self._prefill: PrefillBar | None = None
        self._editor: MessageEditor | None = None
        self._footer_top = 0
        self._column_width = 0
        self._boundary = False
        self._actions: MessageActions | None = None
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        if row.role == "user":
            self._bubble = UserBubble(self)
            self._bubble.resized.connect(self.height_changed)
        else:
            self._column = BlockColumn(context, self)
            self._column.height_changed.connect(self.height_changed)
            self._stats = StatsBar(self)
            self._stats.continue_requested.connect(lambda: self.action_requested.emit("continue"))
        self.set_row(row)

    @property
    def row(self) -> MessageRow:
        """The row as it is shown, streamed text included."""
        return replace(self._row, text=self._text)

    def set_row(self, row: MessageRow) -> None:
        """Show another state of the same message."""
        self._row = row
        self._text = row.text
        if row.position[1] > 1:
            self._need_actions()
        if self._actions is not None:
            self._actions.set_position(row.position)
        running = row.status == "streaming"
        if self._bubble is not None:
            self._bubble.set_text(row.text)
            self.setAccessibleName(self.tr("You: {text}").format(text=row.text[:200]))
            return
        self.setAccessibleName(self.tr("Answer: {text}").format(text=row.text[:200]))
        if self._actions is not None:
            self._actions.set_offered("regenerate", not running)
        if self._column is not None:
            self._column.set_text(row.text, not running)
            self._column.set_caret(running)
        if self._stats is not None:
            self._stats.set_figures(row.figures, row.status, not running and has_hidden(row.text))
        if running and not row.text:
            self._show_prefill()
        elif self._prefill is not None:
            self._drop_prefill()
        if row.status == "error":
            self._show_error(row.error)
        elif self._error is not None:
            self._error.hide()
            self._error.deleteLater()
            self._error = None
        self._refresh_revealed()

    def append_text(self, text: str) -> None:
        """New text of a running answer."""
        self._text += text
        if self._column is None or not text:
            return
        if self._prefill is not None:
            self._drop_prefill()
        self._column.push(text)
        self._column.set_caret(True)

    def set_prefill(self, done: int, total: int, tok_s: float | None) -> None:
        """Progress of reading the prompt; ignored once there is text."""
        if self._text or self._column is None:
            return
        self._show_prefill()
        if self._prefill is not None:
            self._prefill.set_progress(done, total, tok_s)

    def set_live_figures(self, tok_s: float | None, n_tokens: int) -> None:
        """Figures of a running answer."""
        if self._stats is not None:
            self._row = replace(self._row, figures=replace(self._row.figures, decode_tok_s=tok_s, n_tokens=n_tokens))
            self._stats.set_figures(self._row.figures, self._row.status)
            self._place_footer()

    def set_think_figures(self, seconds: float | None, tokens: int | None) -> None:
        """What the first think fold says about itself."""
        for view in self._column.think_views()[:1] if self._column is not None else ():
            view.set_figures(seconds, tokens)

    def set_boundary(self, shown: bool) -> bool:
        """Whether a line below says that the model is given the chat from the next message on; True when that changed."""
        changed = shown != self._boundary
        self._boundary = shown
        self.setAccessibleDescription(self._boundary_text() if shown else "")
        self.update()
        return changed

    def _boundary_text(self) -> str:
        return self.tr("The model sees the chat from here on")

    def set_needle(self, needle: str) -> None:
        """Mark a search text."""
        self._needle = needle
        if self._column is not None:
            self._column.set_needle(needle)
        other = self._bubble or self._error
        for view in () if other is None else other.text_views():
            view.set_needle(needle)

    def text_views(self) -> tuple[TextView, ...]:
        """All selectable texts of the message."""
        if self._bubble is not None:
            return self._bubble.text_views()
        own = self._error.text_views() if self._error is not None else ()
        return (*(self._column.text_views() if self._column is not None else ()), *own)

    @property
    def pending(self) -> int:
        """Blocks of the text that have no widget yet."""
        return 0 if self._column is None else self._column.pending

    def toggle_think(self) -> None:
        """Fold or unfold what the model thought."""
        for view in self._column.think_views() if self._column is not None else ():
            view.fold(not view.folded)

    def restyle(self) -> None:
        """The theme changed."""
        if self._column is not None:
            self._column.restyle()
        self.update()

    def start_editing(self) -> None:
        """Open the editor in place of the bubble."""
        if self._bubble is None or self._editor is not None:
            return
        self._editor = MessageEditor(self._text, self)
        self._editor.accepted.connect(self._on_editor_accepted)
        self._editor.cancelled.connect(self._close_editor)
        self._editor.height_changed.connect(self.height_changed)
        self._bubble.hide()
        if self._actions is not None:
            self._actions.hide()
        self._editor.show()
        self.height_changed.emit()
        self._editor.focus()

    def _on_editor_accepted(self, text: str) -> None:
        self._close_editor()
        self.edited.emit(text)

    def _close_editor(self) -> None:
        if self._editor is None or self._bubble is None:
            return
        self._editor.hide()
        self._editor.deleteLater()
        self._editor = None
        self._bubble.show()
        if self._actions is not None:
            self._actions.show()
        self.height_changed.emit()

    def _show_prefill(self) -> None:
        if self._prefill is None:
            self._prefill = PrefillBar(self)
            self._prefill.show()
            self.height_changed.emit()

    def _drop_prefill(self) -> None:
        if self._prefill is not None:
            self._prefill.hide()
            self._prefill.deleteLater()
            self._prefill = None

    def _show_error(self, text: str) -> None:
        if self._error is None:
            self._error = ErrorCard(self)
            self._error.action_requested.connect(lambda: self.action_requested.emit("error"))
            self._error.show()
        self._error.set_text(text, self._error_action())

    def _error_action(self) -> str:
        """What helps against the error, for the button; the controller does it."""
        return {
            "ContextFull": self.tr("Make room…"),
            "ModelChanged": self.tr("Load the model again"),
            "OutOfDeviceMemory": self.tr("Move layers…"),
        }.get(self._row.error_kind, self.tr("Try again"))

    def _on_action_requested(self, action: str) -> None:
        if action == "edit":
            self.start_editing()
            return
        if action == "copy" and self._actions is not None:
            self._actions.confirm("copy")
        self.action_requested.emit(action)

    def layout_width(self, column: int) -> int:
        """Lay out for a text column of `column` pixels; the widget itself is GUTTER wider."""
        self._column_width = column
        below = _BOUNDARY if self._boundary else 0
        if self._bubble is not None:
            return self._layout_user(column) + _AFTER_USER + below
        return self._layout_answer(column) + _AFTER_ASSISTANT + below

    def _layout_user(self, column: int) -> int:
        if self._editor is not None:
            height = self._editor.layout_width(column)
            self._editor.setGeometry(GUTTER, 0, column, height)
            return height
        if self._bubble is None:
            return 0
        size = self._bubble.layout_width(column)
        left = GUTTER + column - size.width()
        self._bubble.setGeometry(left, 0, size.width(), size.height())
        self._place_user_actions()
        return size.height()

    def _place_user_actions(self) -> None:
        if self._actions is None or self._bubble is None:
            return
        size = self._bubble.size()
        y = size.height() - SIDE - 4 if size.height() > 44 else (size.height() - SIDE) // 2
        self._actions.move(self._bubble.x() - self._actions.sizeHint().width() - 8, max(0, y))

    def _layout_answer(self, column: int) -> int:
        if self._column is None or self._stats is None:
            return 0
        y = 0
        if self._prefill is not None:
            self._prefill.setGeometry(GUTTER, -2, column, PREFILL_HEIGHT)
            y = PREFILL_HEIGHT
        height = self._column.layout_width(column)
        y += 0 if self._column.starts_framed() else _LEAD
        self._column.setGeometry(GUTTER, y, column, height)
        y += height
        if self._error is not None:
            y += _GAP if height else -_LEAD
            error_height = self._error.layout_width(column)
            self._error.setGeometry(GUTTER, y, column, error_height)
            y += error_height
        self._footer_top = y + (12 if y else 0)
        self._place_footer()
        if self._prefill is not None and not self._text:
            return max(30, y)
        return self._footer_top + STATS_HEIGHT

    def _place_footer(self) -> None:
        if self._stats is None:
            return
        shown = not self._stats.is_empty and self._prefill is None
        self._stats.setVisible(shown)
        buttons = self._actions.sizeHint().width() + 14 if self._actions is not None else 3 * SIDE
        width = min(self._stats.sizeHint().width(), max(60, self._column_width - buttons)) if shown else 0
        self._stats.setGeometry(GUTTER, self._footer_top, width, STATS_HEIGHT)
        if self._actions is not None:
            self._actions.setVisible(self._prefill is None)
            self._actions.move(QPoint(GUTTER + width + (14 if width else -6), self._footer_top))

    def _need_actions(self) -> None:
        """Buttons are made when they are first wanted: most messages are only scrolled past."""
        if self._actions is not None:
            return
        user = self._row.role == "user"
        self._actions = MessageActions(
            ("copy", "edit", "delete") if user else ("copy", "regenerate", "telemetry", "delete"), self
        )
        self._actions.set_position(self._row.position)
        if not user:
            self._actions.set_offered("regenerate", self._row.status != "streaming")
        self._actions.action_requested.connect(self._on_action_requested)
        self._actions.branch_requested.connect(self.branch_requested)
        if user:
            self._place_user_actions()
        else:
            self._place_footer()
        self._actions.show()

    def focusInEvent(self, event: QFocusEvent) -> None:
        self._need_actions()
        self._refresh_revealed()
        super().focusInEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._refresh_revealed()
        super().focusOutEvent(event)

    def enterEvent(self, event: QEnterEvent) -> None:
        self._hovered = True
        self._need_actions()
        self._refresh_revealed()
        super().enterEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        self._hovered = False
        self._refresh_revealed()
        super().leaveEvent(event)

    def _refresh_revealed(self) -> None:
        if self._actions is not None:
            self._actions.set_revealed((self._hovered or self.hasFocus()) and self._row.status != "streaming")
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        if self._boundary:
            self._paint_boundary(painter)
        if self.hasFocus():
            below = _BOUNDARY if self._boundary else 0
            paint.rounded(painter, QRectF(self.rect()).adjusted(0, 0, 0, -8 - below), 10, None, "accent", 2)
        if self._bubble is not None:
            return
        paint.tile(painter, QRectF(0, 1, 26, 26), 8, "sparkles", 14)

    def _paint_boundary(self, painter: QPainter) -> None:
        middle = self.height() - _BOUNDARY + 4.5
        text = self._boundary_text()
        half = paint.text_width(text, 11, 500) / 2 + 12
        centre = GUTTER + self._column_width / 2
        paint.line(painter, GUTTER, middle, centre - half, middle)
        paint.line(painter, centre + half, middle, GUTTER + self._column_width, middle)
        paint.text(painter, centre, middle + 4, text, 11, 500, "text3", "center")
