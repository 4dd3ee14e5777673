"""TimePlot: a gauge over time as a filled line; where nothing was read there is none.

Lines wider than 1 px are drawn as separate segments, and their areas without smooth edges: see `painters`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from PySide6.QtCore import QLineF, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QLinearGradient, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QWidget

from app import theme
from app.widgets import paint

F64 = npt.NDArray[np.float64]
_LINE = 1.5
PX_PER_POINT = 2.0
"""Points that lie closer say nothing more."""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """values at times (ascending, NaN is a gap) between start and end, all in seconds."""

    times: F64
    values: F64
    start_s: float
    end_s: float


class TimePlot(QWidget):
    """low, high: the scale; None: that of the values, with room below so that small changes stay small."""

    def __init__(self, token: str, parent: QWidget | None = None, *, low: float | None = None, high: float | None = None) -> None:
        super().__init__(parent)
        self._token = token
        self._low, self._high = low, high
        self._series: Series | None = None
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        theme.hub().changed.connect(self.update)

    def set_series(self, series: Series | None) -> None:
        """Show other values."""
        if series is None and self._series is None:
            return
        self._series = series
        self.update()

    @property
    def series(self) -> Series | None:
        """What is shown."""
        return self._series

    @property
    def n_points(self) -> int:
        """As many as can be told apart."""
        return max(8, int(self.width() / PX_PER_POINT))

    def sizeHint(self) -> QSize:
        return QSize(180, 32)

    def runs(self) -> list[list[QPointF]]:
        """The points of each stretch without a gap."""
        series = self._series
        if series is None or not len(series.times) or series.end_s <= series.start_s:
            return []
        known = np.isfinite(series.values)
        if not known.any():
            return []
        low, high = self._scale(series.values[known])
        x = (series.times - series.start_s) / (series.end_s - series.start_s) * self.width()
        room = self.height() - _LINE
        y = _LINE / 2 + room * (1 - np.clip((series.values - low) / (high - low), 0, 1))
        edges = np.flatnonzero(np.diff(known.astype(np.int8), prepend=0, append=0)).tolist()
        xs, ys = x.tolist(), y.tolist()
        return [
            [QPointF(a, b) for a, b in zip(xs[i:j], ys[i:j], strict=True)] for i, j in zip(edges[::2], edges[1::2], strict=True)
        ]

    def _scale(self, values: F64) -> tuple[float, float]:
        lowest, highest = float(values.min()), float(values.max())
        span = max(highest - lowest, abs(highest) * 0.1, 1e-6)
        low = max(0.0, lowest - 1.4 * span) if self._low is None else self._low
        high = highest + 0.2 * span if self._high is None else self._high
        return low, max(high, low + 1e-6)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        runs = self.runs()
        foot = float(self.height())
        if not runs:
            paint.line(painter, 0, foot - 0.5, self.width(), foot - 0.5, "line2")
            return
        gradient = QLinearGradient(0, 0, 0, foot)
        gradient.setColorAt(0, theme.color(self._token, 0.28))
        gradient.setColorAt(1, theme.color(self._token, 0.0))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(gradient)
        for points in runs:
            if len(points) > 1:
                painter.drawPolygon(QPolygonF([*points, QPointF(points[-1].x(), foot), QPointF(points[0].x(), foot)]))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(theme.color(self._token), _LINE, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap))
        lines = [QLineF(a, b) for points in runs for a, b in pairwise(points)]
        painter.drawLines(lines)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.color(self._token))
        for points in runs:
            if len(points) == 1:
                painter.drawEllipse(QRectF(points[0].x() - 1, points[0].y() - 1, 2, 2))
