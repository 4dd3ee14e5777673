"""CoreGrid: one cell for each physical core, grouped by the L3 cache they share, with a stripe for each of its threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from app import theme
from app.widgets import paint

_GAP = 3.0
_GROUP_GAP = 8.0
_WIDEST, _HIGHEST, _LEAST = 44.0, 24.0, 7.0
_STEP = 4
"""Loads are shown in steps of so many percent: less is not seen, and a cell that looks the same is not painted again."""
NOT_ON = -1


@dataclass(frozen=True, slots=True)
class CoreCell:
    """loads: percent of each of its threads, rounded to what is told apart; () where nothing is read. owned: an engine's worker
    is pinned to it; kept: it is kept back for the window and for launching GPU work."""

    index: int
    group: int
    cpus: tuple[int, ...]
    loads: tuple[int, ...] = ()
    owned: bool = False
    kept: bool = False


def shown_load(percent: float) -> int:
    """A load as it is shown."""
    return round(percent / _STEP) * _STEP


class CoreGrid(QWidget):
    """Cells in the order of the topology. The widget is as high as `height_for` says."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._cells: tuple[CoreCell, ...] = ()
        self._rects: tuple[QRectF, ...] = ()
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        theme.hub().changed.connect(self.update)

    @property
    def cells(self) -> tuple[CoreCell, ...]:
        """What is shown."""
        return self._cells

    def set_cells(self, cells: Sequence[CoreCell]) -> bool:
        """Show other loads; True where the grid has another shape."""
        fresh = tuple(cells)
        if fresh == self._cells:
            return False
        reshaped = [cell.group for cell in fresh] != [cell.group for cell in self._cells]
        self._cells = fresh
        if reshaped:
            self._rects = ()
        self.update()
        return reshaped

    def resizeEvent(self, event: object) -> None:
        self._rects = ()

    def height_for(self, width: float) -> int:
        """Pixels that the cells need at this width."""
        rects = place_cells([cell.group for cell in self._cells], width)
        return round(max((rect.bottom() for rect in rects), default=_HIGHEST)) + 1

    def cell_at(self, position: QPointF) -> CoreCell | None:
        """The core under a point of the grid."""
        for cell, rect in zip(self._cells, self._placed(), strict=True):
            if rect.contains(position):
                return cell
        return None

    def _placed(self) -> tuple[QRectF, ...]:
        if len(self._rects) != len(self._cells):
            self._rects = tuple(place_cells([cell.group for cell in self._cells], self.width()))
        return self._rects

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        painter.setPen(Qt.PenStyle.NoPen)
        colors: dict[int, QColor] = {}
        rects = self._placed()
        for cell, rect in zip(self._cells, rects, strict=True):
            loads = cell.loads or (0,)
            width = (rect.width() - (len(loads) - 1)) / len(loads)
            radius = min(4.0, width / 3, rect.height() / 3)
            for i, load in enumerate(loads):
                color = colors.get(load)
                if color is None:
                    color = colors[load] = theme.heat_color(max(0.03, load / 100))
                painter.setBrush(color)
                painter.drawRoundedRect(QRectF(rect.x() + i * (width + 1), rect.y(), width, rect.height()), radius, radius)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(theme.color("accent", 0.5), 1))
        for cell, rect in zip(self._cells, rects, strict=True):
            if cell.owned:
                painter.drawRoundedRect(rect.adjusted(-1, -1, 1, 1), 4.5, 4.5)


def place_cells(groups: Sequence[int], width: float) -> list[QRectF]:
    """A cell for each core, given the group of each: rows of whole groups where they fit, with more room between groups."""
    if not groups:
        return []
    runs = _runs(groups)
    longest, n = max(runs), len(groups)
    columns = _columns(n, longest)
    in_row = max(1, columns // longest) if longest <= columns else 1
    gaps = (_GROUP_GAP - _GAP) * (in_row - 1)
    step = min(
        _WIDEST, max(_LEAST, (width - 2 + _GAP - gaps) / min(columns, in_row * longest if longest <= columns else columns))
    )
    height = min(step, _HIGHEST) - _GAP
    rects, x, y, rows = [], 0, 1.0, 0
    for number, run in enumerate(runs):
        if number and (longest > columns or number % in_row == 0):
            y += (rows + 1) * (height + _GAP) + (_GROUP_GAP - _GAP if longest > columns else 0)
            x, rows = 0, 0
        shift = 0.0 if longest > columns else (number % in_row) * (_GROUP_GAP - _GAP)
        start = 0 if longest > columns else (number % in_row) * longest
        for i in range(run):
            rows = i // columns if longest > columns else 0
            x = i % columns if longest > columns else start + i
            rects.append(QRectF(1 + x * step + shift, y + rows * (height + _GAP), step - _GAP, height))
    return rects


def _runs(groups: Sequence[int]) -> list[int]:
    runs = [0]
    for before, group in zip((groups[0], *groups), groups, strict=False):
        if group == before:
            runs[-1] += 1
        else:
            runs.append(1)
    return runs


def _columns(n: int, longest: int) -> int:
    """16 in a row for many cores, fewer and wider for few; whole groups."""
    if n <= 8:
        return n
    columns = 16 if n > 24 else (n + 1) // 2
    if n > 96:
        columns = 24
    return max(longest, columns // longest * longest) if longest <= columns else columns
