"""GpuCard: one graphics card: temperature, how much of the time it works for us, its memory by owner, power, clock, link."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.monitors.gauge_card import GaugeCard
from app.monitors.reading import Reading
from app.monitors.ring_gauge import draw_ring
from app.monitors.time_plot import TimePlot
from app.widgets import paint
from app.widgets.icon import draw_icon

HEIGHT = 246
_PAD = 16
_FADED = 0.45
_PILL = 22.0


@dataclass(frozen=True, slots=True)
class Pill:
    """The word at the top right of a card that needs attention. tip: the whole sentence."""

    text: str
    tone: str
    icon: str = "triangle-alert"
    tip: str = ""


@dataclass(frozen=True, slots=True)
class GpuFigures:
    """title: `GPU 0`; name: `RTX 4090`; link: `Gen4 ×16`.

    ring: the share of the ring and its colour. line: the colour of the frame. faded: the values are not of now.
    """

    key: str
    title: str
    name: str
    link: Reading
    temperature: Reading
    fan: Reading
    working: Reading
    memory: Reading
    power: Reading
    clock: Reading
    traffic: Reading
    segments: tuple[tuple[float, str], ...] = ()
    ring: tuple[float, str] = (0.0, "ok")
    pill: Pill | None = None
    line: str = "line"
    faded: bool = False

    @property
    def readings(self) -> tuple[Reading, ...]:
        """In the order of `GpuCard.value_rects`."""
        return (self.temperature, self.fan, self.working, self.memory, self.power, self.clock, self.traffic, self.link)


class GpuCard(GaugeCard):
    """Figures through set_figures; the line through `plot`."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._figures: GpuFigures | None = None
        self.plot = TimePlot("cyan", self, low=0, high=100)
        self.setFixedHeight(HEIGHT)

    def set_figures(self, figures: GpuFigures) -> None:
        """Show other figures."""
        if figures == self._figures:
            return
        self._figures = figures
        words = [figures.title, figures.name]
        if figures.pill is not None:
            words.append(figures.pill.tip or figures.pill.text)
        self.set_readings(", ".join(word for word in words if word), figures.readings)
        self.update()

    @property
    def figures(self) -> GpuFigures | None:
        """What is shown."""
        return self._figures

    def sizeHint(self) -> QSize:
        return QSize(323, HEIGHT)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.plot.setGeometry(118, 72, max(20, self.width() - 118 - _PAD), 50)

    def _column(self, index: int) -> float:
        return _PAD + index * (self.width() - 2 * _PAD) / 3 + (0, 6, 4)[index]

    def value_rects(self) -> tuple[QRectF, ...]:
        width, right = self.width(), self.width() - _PAD + 8
        columns = [self._column(i) - 8 for i in range(3)]
        ends = [columns[1] - 2, columns[2] - 2, float(right)]
        foot = [QRectF(x, 194, end - x, 42) for x, end in zip(columns, ends, strict=True)]
        return (
            QRectF(20, 48, 76, 66),
            QRectF(20, 115, 76, 21),
            QRectF(110, 44, right - 110, 26),
            QRectF(8, 139, right - 8, 38),
            *foot,
            QRectF(width - 110, 10, 102, 26),
        )

    def tip_of(self, reading: Reading) -> str:
        figures = self._figures
        if figures is not None and figures.pill is not None and reading is figures.link:
            return "\n".join(part for part in (figures.pill.tip or figures.pill.text, super().tip_of(reading)) if part)
        return super().tip_of(reading)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        figures = self._figures
        self.paint_frame(painter, "line" if figures is None else figures.line)
        if figures is not None:
            self._paint_head(painter, figures)
            if figures.faded:
                painter.setOpacity(_FADED)
            self._paint_ring(painter, figures)
            self._paint_memory(painter, figures)
            for i, reading in enumerate((figures.power, figures.clock, figures.traffic)):
                x = self._column(i)
                room = (self.width() - 2 * _PAD) / 3 - 8
                paint.text(painter, x, 208, reading.label, 11, 400, "text3", max_width=room)
                said = f"{reading.text} {reading.unit}".strip()
                paint.text(painter, x, 227, said, 12, 500, reading.tone, max_width=room + (4 if i == 2 else 0))
            painter.setOpacity(1)
        self.paint_focus(painter)

    def _paint_head(self, painter: QPainter, figures: GpuFigures) -> None:
        right = float(self.width() - _PAD)
        pill = figures.pill
        if pill is not None:
            width = paint.text_width(pill.text, 11, 600) + 38
            rect = QRectF(right - width + 2, 12, width, _PILL)
            paint.rounded(painter, rect, _PILL / 2, theme.color(pill.tone, 0.14))
            draw_icon(painter, pill.icon, rect.x() + 8, rect.y() + 4.5, 13, pill.tone)
            paint.text(painter, rect.x() + 26, 27.2, pill.text, 11, 600, pill.tone)
            right = rect.x() - 8
        else:
            right -= paint.text(painter, right, 27, figures.link.text, 11, 400, figures.link.tone, "right") + 10
        x = _PAD + paint.text(painter, _PAD, 27, figures.title, 14, 600) + 9
        paint.text(painter, x, 27, figures.name, 12, 400, "text3", max_width=max(8.0, right - x))

    def _paint_ring(self, painter: QPainter, figures: GpuFigures) -> None:
        share, tone = figures.ring
        draw_ring(painter, _PAD + 42, 88, 34, share, tone, 6)
        reading = figures.temperature
        if reading.is_known:
            paint.text(painter, _PAD + 44, 93, reading.text.split(" ")[0] + "°", 19, 600, "text", "center")
        else:
            paint.text(painter, _PAD + 42, 93, reading.text, 14, 600, "text3", "center")
        paint.text(painter, _PAD + 42, 130, figures.fan.text, 11, 400, "text3", "center")
        paint.text(painter, 118, 62, figures.working.label, 11, 500, "text3")
        said = f"{figures.working.text} {figures.working.unit}".strip()
        paint.text(painter, self.width() - _PAD, 62, said, 16, 600, figures.working.tone, "right")

    def _paint_memory(self, painter: QPainter, figures: GpuFigures) -> None:
        right = self.width() - _PAD
        paint.text(painter, _PAD, 154, figures.memory.label, 11, 500, "text3")
        paint.text(painter, right, 154, figures.memory.text, 12, 500, figures.memory.tone, "right")
        paint.bar(painter, QRectF(_PAD, 162, right - _PAD, 9), figures.segments)
        paint.line(painter, _PAD, 187.5, right, 187.5)
