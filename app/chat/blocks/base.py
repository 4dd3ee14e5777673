"""BlockView: what the column of blocks asks of each block widget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.chat.blocks.text_view import TextView
from app.chat.markdown import Block
from app.chat.render_pool import RenderPool


@dataclass(frozen=True, slots=True)
class BlockContext:
    """What blocks share: the worker, where a clicked link goes, and whether block text is subdued (inside a think fold)."""

    pool: RenderPool
    on_link: Callable[[str], None]
    color: str = "text"


class BlockView(QWidget):
    """A block's widget. The column sets block and width and reads the height; height_changed says that it became another."""

    height_changed = Signal()

    def __init__(self, context: BlockContext, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.context = context

    def set_block(self, block: Block) -> None:
        """Show another state of the block; cheap when only text was appended. By default there is nothing to show."""

    def layout_width(self, width: int) -> int:
        """Lay out for `width` pixels; returns the height, 0 by default."""
        return 0

    def text_views(self) -> tuple[TextView, ...]:
        """The selectable texts inside."""
        return ()

    def restyle(self) -> None:
        """The theme changed."""
        self.update()
