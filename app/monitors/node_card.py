"""NodeCard: one NUMA node: its cores, how fast it reads its memory, what of it is asked from elsewhere, and who holds it."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QPoint, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from app.monitors.core_grid import CoreCell, CoreGrid
from app.monitors.gauge_card import GaugeCard
from app.monitors.reading import Reading
from app.monitors.time_plot import TimePlot
from app.widgets import paint

_PAD = 16
_GRID_TOP = 42
_ROW = 42
_PLOT = 46
_CORES = 2
"""Of `NodeFigures.readings`: the value that the grid stands for."""
_NONE: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """title: `NUMA 0`; cores: `cores 0–63`; line: the colour of the frame. *_bar: (share, colour token) from the left.

    plot_label, plot_note: of the line at the foot.
    """

    node: int
    title: str
    cores: str
    temperature: Reading
    clock: Reading
    read: Reading
    remote: Reading
    memory: Reading
    use: Reading
    read_bar: tuple[tuple[float, str], ...] = _NONE
    remote_bar: tuple[tuple[float, str], ...] = _NONE
    memory_bar: tuple[tuple[float, str], ...] = _NONE
    plot_label: str = ""
    plot_note: str = ""
    line: str = "line"
    cells: tuple[CoreCell, ...] = ()

    @property
    def readings(self) -> tuple[Reading, ...]:
        """In the order of `NodeCard.value_rects`."""
        return (self.temperature, self.clock, self.use, self.read, self.remote, self.memory)


class NodeCard(GaugeCard):
    """Figures through set_figures; the line through `plot`. workers_requested(node): a click on its cores, or Enter there; with
    Ctrl that pins their use, as it does every other value."""

    workers_requested = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._figures: NodeFigures | None = None
        self.grid = CoreGrid(self)
        self.plot = TimePlot("experts", self)

    def set_figures(self, figures: NodeFigures) -> bool:
        """Show other figures; True where the card needs another height."""
        reshaped = self.grid.set_cells(figures.cells)
        if reshaped:
            self._place()
        before, self._figures = self._figures, figures
        if before is None or before.readings != figures.readings or _looks(before) != _looks(figures):
            self.set_readings(figures.title, figures.readings)
            self.update()
        return reshaped

    @property
    def figures(self) -> NodeFigures | None:
        """What is shown."""
        return self._figures

    def height_for(self, width: float) -> int:
        """The least height at this width."""
        return _GRID_TOP + self.grid.height_for(width - 2 * _PAD + 2) + 9 + 3 * _ROW + 34 + _PLOT + 12

    def sizeHint(self) -> QSize:
        return QSize(392, self.height_for(392))

    def _rows_top(self) -> int:
        return _GRID_TOP + self.grid.height() + 9

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def _place(self) -> None:
        width = self.width() - 2 * _PAD
        self.grid.setGeometry(_PAD - 1, _GRID_TOP - 1, width + 2, self.grid.height_for(width + 2) + 1)
        top = self._rows_top() + 3 * _ROW + 34
        self.plot.setGeometry(_PAD, top, width, max(10, self.height() - top - 14))

    def value_rects(self) -> tuple[QRectF, ...]:
        right, top = float(self.width() - 8), self._rows_top()
        figures = self._figures
        clock = 70.0 if figures is None else paint.text_width(self._said(figures.clock), 12, 500) + 12
        heat = 56.0 if figures is None else paint.text_width(self._said(figures.temperature), 12, 500) + 12
        rows = [QRectF(8, top + i * _ROW - 4, right - 8, 36) for i in range(3)]
        return (
            QRectF(right - clock - heat - 2, 11, heat, 24),
            QRectF(right - clock, 11, clock, 24),
            QRectF(self.grid.geometry()).adjusted(-2, -2, 2, 2),
            *rows,
        )

    def tip(self, position: QPointF) -> str:
        cell = self.grid.cell_at(position - QPointF(self.grid.pos() or QPoint()))
        if cell is None:
            return super().tip(position)
        return "\n".join([*self._core_lines(cell), *self._cores_do()])

    def tip_of(self, reading: Reading) -> str:
        if reading is not self._readings[_CORES]:
            return super().tip_of(reading)
        value = f"{reading.label}: {reading.text} {reading.unit}".rstrip()
        return "\n".join(line for line in (value, reading.tip, *self._cores_do()) if line)

    def _cores_do(self) -> list[str]:
        use = None if self._figures is None else self._figures.use
        lines = [self.tr("Click: choose the cores that work")]
        if use is not None and use.key:
            pinned = use.key in self._pinned
            out = self.tr("Ctrl+click: take their use out of the chat's side panel")
            lines.append(out if pinned else self.tr("Ctrl+click: pin their use beside the chat"))
        return lines

    def can_choose(self, index: int) -> bool:
        return index == _CORES or super().can_choose(index)

    def choose(self, index: int, modifiers: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        if index == _CORES and self._figures is not None and not modifiers & Qt.KeyboardModifier.ControlModifier:
            self.workers_requested.emit(self._figures.node)
        else:
            super().choose(index)

    def _core_lines(self, cell: CoreCell) -> list[str]:
        lines = [self.tr("Core {n}").format(n=cell.index)]
        for cpu, load in zip(cell.cpus, cell.loads, strict=False):
            lines.append(self.tr("Processor {n}: {load} %").format(n=cpu, load=load))
        lines.append(self.tr("L3 cache {n}").format(n=cell.group))
        if cell.owned:
            lines.append(self.tr("A worker of the engine is pinned to it"))
        if cell.kept:
            lines.append(self.tr("Kept back for the window and for launching GPU work"))
        return lines

    @staticmethod
    def _said(reading: Reading) -> str:
        return f"{reading.text} {reading.unit}".strip()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        figures = self._figures
        self.paint_frame(painter, "line" if figures is None else figures.line)
        if figures is not None:
            self._paint_head(painter, figures)
            self._paint_rows(painter, figures)
        self.paint_focus(painter)

    def _paint_head(self, painter: QPainter, figures: NodeFigures) -> None:
        right = float(self.width() - _PAD)
        for reading in (figures.clock, figures.temperature):
            tone = reading.tone if reading.tone != "text" else "text2"
            right -= paint.text(painter, right, 27, self._said(reading), 12, 500, tone, "right") + 12
        x = _PAD + paint.text(painter, _PAD, 27, figures.title, 14, 600) + 10
        paint.text(painter, x, 27, figures.cores, 12, 400, "text3", max_width=max(8.0, right - x))

    def _paint_rows(self, painter: QPainter, figures: NodeFigures) -> None:
        y, right = self._rows_top(), self.width() - _PAD
        for reading, bar in (
            (figures.read, figures.read_bar),
            (figures.remote, figures.remote_bar),
            (figures.memory, figures.memory_bar),
        ):
            used = paint.text(painter, right, y + 12, self._said(reading), 12, 500, reading.tone, "right")
            paint.text(painter, _PAD, y + 12, reading.label, 12, 400, "text2", max_width=right - _PAD - used - 8)
            paint.bar(painter, QRectF(_PAD, y + 20, right - _PAD, 6), bar)
            y += _ROW
        paint.line(painter, _PAD, y + 2.5, right, y + 2.5)
        used = paint.text(painter, right, y + 24, figures.plot_note, 11, 400, "text3", "right")
        paint.text(painter, _PAD, y + 24, figures.plot_label, 11, 400, "text3", max_width=right - _PAD - used - 8)


def _looks(figures: NodeFigures) -> tuple[object, ...]:
    """What the card itself paints beside its values."""
    return (
        figures.title, figures.cores, figures.line, figures.plot_label, figures.plot_note, figures.read_bar, figures.remote_bar,
        figures.memory_bar,
    )  # fmt: skip
