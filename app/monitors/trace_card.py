"""TraceCard: where the time of one token goes: a lane for each device on one axis, and below it how it adds up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, QSize
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.monitors.gauge_card import GaugeCard
from app.monitors.reading import Reading
from app.widgets import paint

_PAD = 16
_NAME = 68
_LANE, _LEAST_LANE = 46, 24
_BAR = 18
_ROW = 24
_TICKS = 6
_GAP_PX = 0.8


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a device did from start_ms on. token: its colour; text: what it was, for the tooltip."""

    start_ms: float
    ms: float
    token: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """A device and what it did, in order of time."""

    name: str
    stretches: tuple[Stretch, ...]


@dataclass(frozen=True, slots=True)
class TraceFigures:
    """total_ms: of the token, None where nothing was measured, which `note` explains. parts: how it adds up: colour token, and a
    reading whose unit is the share."""

    total_ms: float | None = None
    note: str = ""
    lanes: tuple[Lane, ...] = ()
    parts: tuple[tuple[str, Reading], ...] = ()


class TraceCard(GaugeCard):
    """Figures through set_figures."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._figures = TraceFigures()
        self._rects: list[list[tuple[QRectF, str]]] | None = None

    def set_figures(self, figures: TraceFigures) -> bool:
        """Show another token; True where the card needs another height."""
        if figures == self._figures:
            return False
        resized = (len(figures.lanes), len(figures.parts)) != (len(self._figures.lanes), len(self._figures.parts))
        self._figures, self._rects = figures, None
        total = self.tr("nothing measured") if figures.total_ms is None else self.tr("{n} ms").format(n=ms_text(figures.total_ms))
        readings = [reading for _, reading in figures.parts]
        self.set_readings(self.tr("Where one token's time goes: {total}").format(total=total), readings)
        self.update()
        return resized

    @property
    def figures(self) -> TraceFigures:
        """What is shown."""
        return self._figures

    def height_for(self, n_lanes: int | None = None) -> int:
        """The least height."""
        lanes = len(self._figures.lanes) if n_lanes is None else n_lanes
        return 20 + max(1, lanes) * _LEAST_LANE + 46 + max(1, len(self._figures.parts)) * _ROW + 12

    def sizeHint(self) -> QSize:
        return QSize(519, self.height_for())

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._rects = None

    def _lane_height(self) -> float:
        n = max(1, len(self._figures.lanes))
        free = self.height() - 20 - 46 - 12 - max(1, len(self._figures.parts)) * _ROW
        return max(float(_LEAST_LANE), min(float(_LANE), free / n))

    def _foot(self) -> float:
        """Where the lanes end."""
        return 20 + max(1, len(self._figures.lanes)) * self._lane_height()

    def value_rects(self) -> tuple[QRectF, ...]:
        top = self._foot() + 46
        return tuple(QRectF(8, top + i * _ROW - 3, self.width() - 16, _ROW) for i in range(len(self._figures.parts)))

    def tip(self, position: QPointF) -> str:
        step = self._lane_height()
        for i, lane in enumerate(self._figures.lanes):
            if not QRectF(0, 20 + i * step, self.width(), step).contains(position):
                continue
            for stretch in lane.stretches:
                x = self._x(stretch.start_ms)
                if x - 1 <= position.x() <= x + max(2.0, self._x(stretch.ms) - self._x(0)) + 1:
                    said = self.tr("{what}: {ms} ms, from {start} ms on")
                    what = said.format(what=stretch.text, ms=ms_text(stretch.ms), start=ms_text(stretch.start_ms))
                    return f"{lane.name}\n{what}"
            return lane.name
        return super().tip(position)

    def _x(self, ms: float) -> float:
        left, room = _PAD + _NAME, self.width() - 2 * _PAD - _NAME
        return left + ms / max(1e-9, self._figures.total_ms or 1.0) * room

    def _placed(self) -> list[list[tuple[QRectF, str]]]:
        """The boxes of each lane; what is narrower than it can be drawn joins its neighbour of the same colour."""
        if self._rects is not None:
            return self._rects
        step, found = self._lane_height(), []
        for i, lane in enumerate(self._figures.lanes):
            boxes: list[tuple[QRectF, str]] = []
            for stretch in lane.stretches:
                x = round(self._x(stretch.start_ms) * 2) / 2
                width = max(1.0, round((self._x(stretch.ms) - self._x(0) - _GAP_PX) * 2) / 2)
                if boxes and boxes[-1][1] == stretch.token and x - boxes[-1][0].right() < 0.5:
                    boxes[-1][0].setRight(max(boxes[-1][0].right(), x + width))
                else:
                    boxes.append((QRectF(x, 20 + i * step + (step - _BAR) / 2, width, _BAR), stretch.token))
            found.append(boxes)
        self._rects = found
        return found

    def _ticks(self) -> Iterator[float]:
        total = self._figures.total_ms or 0.0
        if total <= 0:
            return
        raw = total / _TICKS
        power = 10 ** math.floor(math.log10(raw))
        step = next(factor * power for factor in (1, 1.5, 2, 2.5, 5, 10) if factor * power >= raw)
        n = 0
        while n * step <= total * 1.0001:
            yield n * step
            n += 1

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        self.paint_frame(painter)
        figures = self._figures
        if figures.total_ms is None:
            paint.text(painter, self.width() / 2, self.height() / 2, figures.note, 12, 400, "text3", "center", self.width() - 32)
        else:
            self._paint_axis(painter)
            self._paint_lanes(painter)
            self._paint_parts(painter)
        self.paint_focus(painter)

    def _paint_axis(self, painter: QPainter) -> None:
        foot = self._foot() + 2
        ticks = list(self._ticks())
        for ms in ticks:
            x = round(self._x(ms)) + 0.5
            paint.line(painter, x, 16, x, foot)
            last = ms == ticks[-1]
            label = self.tr("{n} ms").format(n=f"{ms:g}") if last else f"{ms:g}"
            near_edge = last and x > self.width() - _PAD - 24
            at = float(self.width() - _PAD) if near_edge else x
            paint.text(painter, at, foot + 16, label, 11, 400, "text3", "right" if near_edge else "center")

    def _paint_lanes(self, painter: QPainter) -> None:
        step, room = self._lane_height(), self.width() - 2 * _PAD - _NAME
        for i, (lane, boxes) in enumerate(zip(self._figures.lanes, self._placed(), strict=True)):
            y = 20 + i * step
            paint.rounded(painter, QRectF(_PAD + _NAME, y + (step - _BAR) / 2, room, _BAR), 4, "raised")
            paint.text(painter, _PAD, y + step / 2 + 4.5, lane.name, 12, 500, "text2", max_width=_NAME - 6)
            painter.setRenderHint(painter.RenderHint.Antialiasing, False)
            for rect, token in boxes:
                painter.fillRect(rect, theme.color(token))
            painter.setRenderHint(painter.RenderHint.Antialiasing, True)

    def _paint_parts(self, painter: QPainter) -> None:
        y, right = self._foot() + 32, self.width() - _PAD
        paint.line(painter, _PAD, round(y) + 0.5, right, round(y) + 0.5)
        y += 14
        for token, reading in self._figures.parts:
            paint.rounded(painter, QRectF(_PAD, y + 3, 9, 9), 3, token)
            paint.text(painter, _PAD + 18, y + 12, reading.label, 12, 400, "text2", max_width=right - _PAD - 130)
            paint.text(painter, right - 68, y + 12, reading.unit, 12, 400, "text3", "right")
            paint.text(painter, right, y + 12, reading.text, 12, 500, "text", "right")
            y += _ROW


def ms_text(ms: float) -> str:
    """76.3, 0.42: milliseconds with three digits."""
    return f"{ms:.0f}" if ms >= 100 else (f"{ms:.1f}" if ms >= 1 else f"{ms:.2f}")
