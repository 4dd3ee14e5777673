"""BlockColumn: the blocks of one text below each other. Closed blocks are laid out once; a push touches the tail only.

A widget for each of a thousand paragraphs takes most of a second: of many new blocks the first are made at once, the others in
later turns of the event loop, in order. The tail comes behind them.
"""

from __future__ import annotations

from collections import deque

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QWidget

from app.chat.blocks.base import BlockContext, BlockView
from app.chat.blocks.code_view import CodeView
from app.chat.blocks.math_view import MathView
from app.chat.blocks.prose_view import ProseView
from app.chat.blocks.rule_view import RuleView
from app.chat.blocks.table_view import MAX_CELLS, TableView
from app.chat.blocks.text_view import TextView
from app.chat.blocks.think_view import ThinkView
from app.chat.markdown import Block, Splitter

_FRAMED = ("table", "code", "think")
_GAP = 15
TURN = 24
"""Blocks made in one turn, where they are short; a block counts once more for every COSTLY characters."""
COSTLY = 256


def gap(before: str, after: str) -> int:
    """Pixels between two kinds of blocks."""
    if before == "list" and after == "list":
        return 9
    if before in _FRAMED:
        return 18
    if after == "heading":
        return 22
    if before == "heading":
        return 10
    return {"table": 10, "code": 7, "math": 8, "think": 12}.get(after, 8 if before == "math" else _GAP)


class _Slot:
    __slots__ = ("bottom", "height", "kind", "stale", "top", "view")

    def __init__(self, kind: str, view: BlockView) -> None:
        self.kind = kind
        self.view = view
        self.top = 0
        self.bottom = 0
        self.height = 0
        self.stale = True


class BlockColumn(BlockView):
    """Feed it through push() and finish(), or through set_text(). layout_width() works from the first changed block on."""

    def __init__(self, context: BlockContext, parent: QWidget | None = None) -> None:
        super().__init__(context, parent)
        self._splitter = Splitter()
        self._text = ""
        self._slots: list[_Slot] = []
        self._n_closed = 0
        self._n_seen = 0
        self._dirty = 0
        self._width = 0
        self._finished = False
        self._caret = False
        self._needle = ""
        self._due: deque[Block] = deque()
        self._turn = QTimer(self)
        self._turn.setSingleShot(True)
        self._turn.setInterval(1)  # behind the layout of what was made, which is asked for without delay
        self._turn.timeout.connect(self._on_turn)

    @property
    def pending(self) -> int:
        """Closed blocks that have no widget yet."""
        return len(self._due)

    def set_text(self, text: str, finished: bool) -> None:
        """Show a text; one that only grew is appended."""
        if text.startswith(self._text) and not self._finished:
            self.push(text[len(self._text) :])
        elif text != self._text:
            self._reset()
            self.push(text)
        if finished:
            self.finish()

    def set_block(self, block: Block) -> None:
        """As part of another block (the think fold): its source is this column's text."""
        self.set_text(block.source, block.closed)

    def push(self, text: str) -> None:
        """Append text."""
        if not text:
            return
        self._text += text
        self._splitter.push(text)
        self._sync()

    def finish(self) -> None:
        """The text is complete."""
        if not self._finished:
            self._finished = True
            self._splitter.finish()
            self._sync()

    def set_caret(self, shown: bool) -> None:
        """Show the writing mark after the last character."""
        self._caret = shown
        self._place_caret()

    def set_needle(self, needle: str) -> None:
        """Marks a search text, also in blocks that come later."""
        self._needle = needle
        for view in self.text_views():
            view.set_needle(needle)

    def starts_framed(self) -> bool:
        """Whether the first block has a frame of its own, as high as the avatar or higher."""
        return bool(self._slots) and self._slots[0].kind in _FRAMED

    def think_views(self) -> list[ThinkView]:
        """The think folds of this text."""
        return [slot.view for slot in self._slots if isinstance(slot.view, ThinkView)]

    def _reset(self) -> None:
        for slot in self._slots:
            slot.view.hide()
            slot.view.deleteLater()
        self._slots = []
        self._splitter = Splitter()
        self._text = ""
        self._n_closed = self._n_seen = self._dirty = 0
        self._finished = False
        self._due.clear()

    def _sync(self) -> None:
        """Bring the widgets in line with the splitter: newly closed blocks, then the tail."""
        closed = self._splitter.closed
        self._due.extend(closed[self._n_seen :])
        self._n_seen = len(closed)
        self._work()

    def _work(self) -> None:
        """A turn of it."""
        room = TURN
        while self._due and room > 0:
            block = self._due.popleft()
            if block.kind == "blank":
                continue
            room -= 1 + len(block.source) // COSTLY
            self._show(self._n_closed, block)
            self._n_closed += 1
        position = self._n_closed
        if self._due:
            self._turn.start()
        elif not self._finished:
            for block in self._splitter.tail():
                if block.kind != "blank":
                    self._show(position, block)
                    position += 1
        for slot in self._slots[position:]:
            slot.view.hide()
            slot.view.deleteLater()
        del self._slots[position:]
        self._place_caret()

    def _on_turn(self) -> None:
        self._work()
        self.height_changed.emit()

    def _show(self, position: int, block: Block) -> None:
        kind = self._kind(block)
        self._dirty = min(self._dirty, position)
        if position < len(self._slots) and self._slots[position].kind == kind:
            self._slots[position].view.set_block(block)
            self._slots[position].stale = True
            return
        view = self._make(kind)
        view.set_block(block)
        if self._needle:
            for text in view.text_views():
                text.set_needle(self._needle)
        view.height_changed.connect(lambda: self._on_height_changed(view))
        slot = _Slot(kind, view)
        if position < len(self._slots):
            old = self._slots[position].view
            old.hide()
            old.deleteLater()
            self._slots[position] = slot
        else:
            self._slots.append(slot)
        view.show()

    @staticmethod
    def _kind(block: Block) -> str:
        if block.kind == "table" and block.source.count("|") > MAX_CELLS:
            return "code"
        return block.kind

    def _make(self, kind: str) -> BlockView:
        if kind == "code":
            return CodeView(self.context, self)
        if kind == "table":
            return TableView(self.context, self)
        if kind == "math":
            return MathView(self.context, self)
        if kind == "rule":
            return RuleView(self.context, self)
        if kind == "think":
            return ThinkView(self.context, BlockColumn, self)
        return ProseView(self.context, self)

    def _on_height_changed(self, view: BlockView) -> None:
        for i, slot in enumerate(self._slots):
            if slot.view is view:
                slot.stale = True
                self._dirty = min(self._dirty, i)
                self.height_changed.emit()
                return

    def layout_width(self, width: int) -> int:
        """Place the blocks from the first changed one on; all of them for another width."""
        if width != self._width:
            self._width = width
            self._all_stale()
        for i in range(self._dirty, len(self._slots)):
            slot = self._slots[i]
            slot.top = self._slots[i - 1].bottom + gap(self._slots[i - 1].kind, slot.kind) if i else 0
            if slot.stale:
                slot.height = slot.view.layout_width(width)
                slot.stale = False
            slot.bottom = slot.top + slot.height
            slot.view.setGeometry(0, slot.top, width, slot.height)
        self._dirty = len(self._slots)
        return self._slots[-1].bottom if self._slots else 0

    def _all_stale(self) -> None:
        self._dirty = 0
        for slot in self._slots:
            slot.stale = True

    def text_views(self) -> tuple[TextView, ...]:
        """All selectable texts."""
        return tuple(view for slot in self._slots for view in slot.view.text_views())

    def restyle(self) -> None:
        """Every block takes the colours of the new theme."""
        for slot in self._slots:
            slot.view.restyle()
        self._all_stale()

    def _place_caret(self) -> None:
        last = self._slots[-1].view.text_views() if self._slots and self._caret else ()
        for slot in self._slots[-2:]:
            for view in slot.view.text_views():
                view.caret_shown = bool(last) and view is last[-1]
                view.update()
