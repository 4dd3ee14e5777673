"""ProseView: a paragraph, heading, list item or quote. Only an open block is ever parsed twice."""

from __future__ import annotations

from PySide6.QtCore import QRectF
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.chat.blocks.base import BlockContext, BlockView
from app.chat.blocks.inline_math import InlineMath
from app.chat.blocks.rich_text import TextStyle, fill
from app.chat.blocks.text_view import TextView
from app.chat.markdown import Block
from app.widgets import paint

_QUOTE_INDENT = 16


class ProseView(BlockView):
    """Formatted text; quotes have a bar at their left."""

    def __init__(self, context: BlockContext, parent: QWidget | None = None) -> None:
        super().__init__(context, parent)
        self.view = TextView(self)
        self.view.link_clicked.connect(context.on_link)
        self._block = Block("prose", "")
        self._indent = 0
        self._math = InlineMath(self.view, context.pool)
        self._math.changed.connect(self.height_changed)

    def set_block(self, block: Block) -> None:
        """Parse and show the block."""
        if block.source == self._block.source and block.kind == self._block.kind:
            if block.closed and not self._block.closed:
                self._math.start()
            self._block = block
            return
        self._block = block
        self._indent = _QUOTE_INDENT if block.kind == "quote" else 0
        self._fill()

    def _fill(self) -> None:
        block = self._block
        color = "text2" if block.kind == "quote" else self.context.color
        ordinal = int(block.info) if block.kind == "list" and block.info else None
        fill(self.view.document, block.source, TextStyle(color=color, ordinal=ordinal))
        self.view.text_changed()
        if block.closed:
            self._math.start()

    def layout_width(self, width: int) -> int:
        """Wrap; returns the height."""
        height = self.view.layout_width(width - self._indent)
        self.view.setGeometry(self._indent, 0, width - self._indent, height)
        return height

    def text_views(self) -> tuple[TextView, ...]:
        """The one text."""
        return (self.view,)

    def restyle(self) -> None:
        """Colours stand in the document's formats, so it is made anew."""
        self._fill()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._indent:
            painter = QPainter(self)
            paint.begin(painter)
            paint.rounded(painter, QRectF(0, 0, 3, self.height()), 1.5, "line2")
