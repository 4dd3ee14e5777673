"""RuleView: a thematic break, one thin line."""

from __future__ import annotations

from PySide6.QtGui import QPainter, QPaintEvent

from app.chat.blocks.base import BlockView
from app.widgets import paint

_HEIGHT = 17


class RuleView(BlockView):
    """Says nothing, takes 17 px."""

    def layout_width(self, width: int) -> int:
        """Always 17."""
        return _HEIGHT

    def paintEvent(self, event: QPaintEvent) -> None:
        paint.line(QPainter(self), 0, _HEIGHT / 2, self.width(), _HEIGHT / 2, "line2")
