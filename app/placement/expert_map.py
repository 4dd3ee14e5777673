"""ExpertMap: how often experts are used: one layer as a grid of squares, or all layers as rows, with the scale below.

Counts are painted through an image of one pixel an expert, so that a map of 94 x 128 costs the same as one of 16 x 16.
"""

from __future__ import annotations

import math
from functools import lru_cache

from PySide6.QtCore import QEvent, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QHelpEvent, QImage, QLinearGradient, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app import theme
from app.placement.heat_strip import heat_ramp
from app.widgets import paint

LEVELS = 255
_GRID_HEIGHT = 160
_SCALE_HEIGHT = 18
_MOST_ROW = 8.0
_MOST_MAP = 300
_GAMMA = 0.75
"""Squares are larger than the cells of a strip; what is used little shall still be told from what is not used."""


@lru_cache(maxsize=4)
def _ramp(_theme: str) -> tuple[int, ...]:
    return tuple(int(heat_ramp((level / LEVELS) ** _GAMMA).rgb()) for level in range(LEVELS + 1))


def ramp() -> tuple[int, ...]:
    """The colours of levels 0 to LEVELS in the present theme, as Qt's RGB words."""
    return _ramp(theme.current().name)


def columns_of(n_experts: int) -> int:
    """How many squares of a grid stand in a row: 16 for 256, 8 for 64, so that it comes out wider than high."""
    return max(1, min(32, 1 << math.ceil(math.log2(max(1, n_experts)) / 2)))


class ExpertMap(QWidget):
    """layer_clicked(number of the row) when a row of the whole map was clicked."""

    layer_clicked = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._levels = b""
        self._n_rows = 0
        self._n_experts = 0
        self._layers: tuple[int, ...] = ()
        self._top = ""
        self._marked: frozenset[int] = frozenset()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setMouseTracking(True)
        theme.hub().changed.connect(self.update)

    def set_levels(
        self, levels: bytes, n_experts: int, layers: tuple[int, ...], top: str, marked: frozenset[int] = frozenset()
    ) -> None:
        """levels: 0..LEVELS of each expert, row by row; layers: of each row; top: what LEVELS stands for, `2.4 %`.

        marked: experts of the only row that are chosen, drawn with an outline.
        """
        if (levels, n_experts, layers, top, marked) == (self._levels, self._n_experts, self._layers, self._top, self._marked):
            return
        resized = (len(layers), n_experts) != (self._n_rows, self._n_experts)
        self._levels, self._n_experts, self._layers = levels, n_experts, layers
        self._n_rows, self._top, self._marked = len(layers), top, marked
        if resized:
            self.setFixedHeight(self.sizeHint().height())
            self.updateGeometry()
            self._name()
        self.update()

    def _name(self) -> None:
        if self._n_rows == 1:
            self.setAccessibleName(
                self.tr("Use of {n} experts of layer {layer}").format(n=self._n_experts, layer=self._layers[0])
            )
        else:
            self.setAccessibleName(self.tr("Use of {n} experts of {rows} layers").format(n=self._n_experts, rows=self._n_rows))

    def sizeHint(self) -> QSize:
        return QSize(236, round(self._map_height()) + _SCALE_HEIGHT)

    def _map_height(self) -> float:
        if self._n_rows <= 1:
            rows = -(-self._n_experts // columns_of(self._n_experts)) if self._n_experts else 1
            return min(_GRID_HEIGHT, rows * 14)
        return min(_MOST_MAP, self._n_rows * min(_MOST_ROW, _MOST_MAP / self._n_rows))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        if self._n_rows == 1:
            self._paint_grid(painter)
        elif self._n_rows:
            self._paint_rows(painter)
        self._paint_scale(painter)

    def _paint_grid(self, painter: QPainter) -> None:
        columns, colors = columns_of(self._n_experts), ramp()
        rows = -(-self._n_experts // columns)
        across, down = (self.width() + 1.75) / columns, self._map_height() / rows
        painter.setPen(Qt.PenStyle.NoPen)
        for i, level in enumerate(self._levels):
            painter.setBrush(QColor.fromRgb(colors[level]))
            square = QRectF((i % columns) * across, (i // columns) * down, across - 1.75, down - 1.6)
            painter.drawRoundedRect(square, 2, 2)
            if i in self._marked:
                paint.rounded(painter, square, 2, None, "text", 1)
                painter.setPen(Qt.PenStyle.NoPen)

    def _paint_rows(self, painter: QPainter) -> None:
        image = QImage(self._levels, self._n_experts, self._n_rows, self._n_experts, QImage.Format.Format_Indexed8)
        image.setColorTable(list(ramp()))
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, False)
        painter.drawImage(QRectF(0, 0, self.width(), self._map_height()), image)
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, True)

    def _paint_scale(self, painter: QPainter) -> None:
        baseline = self.height() - 2.0
        left = paint.text(painter, 0, baseline, "0 %", 11, 400, "text3") + 10
        right = self.width() - paint.text_width(self._top, 11) - 10
        gradient = QLinearGradient(left, 0, right, 0)
        colors = ramp()
        gradient.setColorAt(0, QColor.fromRgb(colors[0]))
        gradient.setColorAt(1, QColor.fromRgb(colors[LEVELS]))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(gradient)
        painter.drawRoundedRect(QRectF(left, baseline - 7, right - left, 6), 3, 3)
        paint.text(painter, self.width(), baseline, self._top, 11, 400, "text3", "right")

    def _place_of(self, x: float, y: float) -> tuple[int, int] | None:
        """(row, expert) below a point."""
        height = self._map_height()
        if not self._n_rows or not 0 <= y < height or not 0 <= x < self.width():
            return None
        if self._n_rows == 1:
            columns = columns_of(self._n_experts)
            rows = -(-self._n_experts // columns)
            expert = int(y * rows / height) * columns + int(x * columns / self.width())
            return (0, expert) if expert < self._n_experts else None
        return int(y * self._n_rows / height), int(x * self._n_experts / self.width())

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        place = self._place_of(event.position().x(), event.position().y())
        if place is not None and self._n_rows > 1:
            self.layer_clicked.emit(self._layers[place[0]])

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            place = self._place_of(event.pos().x(), event.pos().y())
            text = "" if place is None else self.tr("Layer {n}, expert {e}").format(n=self._layers[place[0]], e=place[1])
            QToolTip.showText(event.globalPos(), text, self)
            return True
        return super().event(event)
