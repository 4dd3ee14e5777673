"""FigureTable: rows of a label and figures under heads, as the panes at the right show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app import theme
from app.widgets import paint

ROW = 24
_HEAD = 30


@dataclass(frozen=True, slots=True)
class TableRow:
    """tone: the colour of the last cell. is_head: the name of a group, in bold below a line. dot: a colour of cards."""

    label: str
    cells: tuple[str, ...] = ()
    tone: str = "text"
    is_head: bool = False
    dot: str = ""


class FigureTable(QWidget):
    """Painted; what it says is its accessible description."""

    def __init__(self, name: str, widths: Sequence[int], parent: QWidget | None = None) -> None:
        """widths: of the cells in pixels, from the left; labels take the rest."""
        super().__init__(parent)
        self._widths = tuple(widths)
        self._heads: tuple[str, ...] = ()
        self._rows: tuple[TableRow, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(name)
        theme.hub().changed.connect(self.update)

    def set_rows(self, heads: Sequence[str], rows: Sequence[TableRow]) -> None:
        """heads: of the cells."""
        self._heads, self._rows = tuple(heads), tuple(rows)
        self.setAccessibleDescription("; ".join(" ".join((row.label, *row.cells)) for row in self._rows))
        self.setFixedHeight(self.sizeHint().height())
        self.update()

    @property
    def rows(self) -> tuple[TableRow, ...]:
        """What is shown."""
        return self._rows

    def sizeHint(self) -> QSize:
        top = 20 if any(self._heads) else 0
        return QSize(300, top + sum(_HEAD if row.is_head else ROW for row in self._rows))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rights = self._rights()
        y = 0.0
        if any(self._heads):
            for right, head, width in zip(rights, self._heads, self._widths, strict=False):
                paint.text(painter, right, 13, head, 11, 500, "text3", "right", max_width=width - 6)
            y = 20.0
        for number, row in enumerate(self._rows):
            y += self._paint_row(painter, y, row, rights, first=number == 0)

    def _rights(self) -> tuple[float, ...]:
        right, found = float(self.width()), []
        for width in reversed(self._widths):
            found.append(right)
            right -= width
        return tuple(reversed(found))

    def _paint_row(self, painter: QPainter, y: float, row: TableRow, rights: tuple[float, ...], *, first: bool) -> float:
        height = _HEAD if row.is_head else ROW
        baseline = y + height - 8
        if row.is_head and not first:
            paint.line(painter, 0, round(y) + 4.5, self.width(), round(y) + 4.5)
        x = 0.0
        if row.dot:
            paint.rounded(painter, QRectF(0, baseline - 8, 8, 8), 2.5, row.dot)
            x = 15
        room = self.width() - sum(self._widths) - 8 - x
        paint.text(
            painter, x, baseline, row.label, 12, 600 if row.is_head else 400, "text" if row.is_head else "text3", max_width=room
        )
        weight = 600 if row.is_head else 500
        cells = tuple(zip(rights, row.cells, self._widths, strict=False))
        for i, (right, cell, width) in enumerate(cells):
            tone = row.tone if i == len(cells) - 1 else "text"
            paint.text(painter, right, baseline, cell, 12, weight, tone, "right", max_width=width - 6)
        return height
