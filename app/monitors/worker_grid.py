"""WorkerGrid: every thread of every core, by node and L3 group; which of them shall work is painted with the mouse or by keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from PySide6.QtCore import QEvent, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleEvent,
    QFocusEvent,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QToolTip, QWidget

from app import theme
from app.monitors.core_layout import Box, Cell, CoreLayout, laid_out
from app.widgets import paint
from app.widgets.painted_button import KEYBOARD_REASONS
from engine.api.values import Topology
from engine.api.workers import every_core, kept_cpus

_RADIUS = 4
_STEPS = {
    Qt.Key.Key_Left: (-1, 0),
    Qt.Key.Key_Right: (1, 0),
    Qt.Key.Key_Up: (0, -1),
    Qt.Key.Key_Down: (0, 1),
}


class WorkerGrid(QWidget):
    """painted(): the user chose other processors. Space turns one on or off, with Shift arrows paint, Ctrl+A takes every core."""

    painted = Signal()

    def __init__(self, topology: Topology, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._topology = topology
        self._allowed = frozenset(topology.allowed_cpus)
        self._kept = frozenset(kept_cpus(topology))
        self._layout: CoreLayout = laid_out(topology, 640)
        self._chosen: frozenset[int] = frozenset()
        self._use: Mapping[int, float] = {}
        self._brush: bool | None = None
        first = next((one.cpu for one in self._layout.cells if one.cpu in self._allowed), self._layout.cells[0].cpu)
        self._current, self._focus_seen = first, False
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.setAccessibleName(self.tr("Cores that work"))
        self._describe()
        theme.hub().changed.connect(self.update)

    # --- what is shown -----------------------------------------------------------------------------------------------

    @property
    def chosen(self) -> tuple[int, ...]:
        """The processors that shall work, ascending."""
        return tuple(sorted(self._chosen))

    def choose(self, cpus: Iterable[int]) -> None:
        """Shows others, those that may be used; tells nobody."""
        chosen = frozenset(cpus) & self._allowed
        if chosen != self._chosen:
            self._chosen = chosen
            self._describe()
            self.update()

    def set_use(self, use: Mapping[int, float]) -> None:
        """How busy each processor is, in percent; those that are not named show none."""
        if use != self._use:
            self._use = use
            self.update()

    def look_at(self, node: int) -> int:
        """The keyboard goes to the first processor of a node that may be used; the top of the node's part of the picture."""
        cells = [one for one in self._layout.cells if one.node == node]
        usable = [one for one in cells if one.cpu in self._allowed] or cells
        if usable:
            self._current = usable[0].cpu
            self._describe()
            self.update()
        return next((one.y for one in self._layout.boxes if one.node == node), 0)

    def sentence(self, cpu: int) -> str:
        """What is to be said of a processor."""
        cell = next(one for one in self._layout.cells if one.cpu == cpu)
        parts = [self.tr("Processor {n}").format(n=cpu), self.tr("core {n}").format(n=cell.core)]
        if len(self._topology.cores[cell.core].cpus) > 1:
            parts.append(self.tr("thread {n} of its core").format(n=cell.thread + 1))
        parts += [self.tr("L3 group {n}").format(n=cell.l3), self.tr("node {n}").format(n=cell.node)]
        if cell.small:
            parts.append(self.tr("a small core: each step would wait for it"))
        if cpu not in self._allowed:
            parts.append(self.tr("outside the processors that this program may use"))
        else:
            parts.append(self.tr("works") if cpu in self._chosen else self.tr("does not work"))
        if cpu in self._kept:
            parts.append(self.tr("kept back by the worker plan for launching GPU work and for the window"))
        if cpu in self._use:
            parts.append(self.tr("{n} % busy").format(n=f"{self._use[cpu]:.0f}"))
        return ", ".join(parts)

    # --- size --------------------------------------------------------------------------------------------------------

    def sizeHint(self) -> QSize:
        return QSize(self._layout.width, self._layout.height)

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        return laid_out(self._topology, width).height

    def resizeEvent(self, event: QResizeEvent) -> None:
        if self.width() != self._layout.width:
            self._layout = laid_out(self._topology, self.width())
            self.setMinimumHeight(self._layout.height)
            self.update()

    # --- mouse -------------------------------------------------------------------------------------------------------

    def mousePressEvent(self, event: QMouseEvent) -> None:
        cell = self._layout.at(event.position().x(), event.position().y())
        if event.button() is not Qt.MouseButton.LeftButton or cell is None or cell.cpu not in self._allowed:
            return
        self._brush = cell.cpu not in self._chosen
        self._go(cell.cpu)
        self._paint(cell.cpu)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        cell = self._layout.at(event.position().x(), event.position().y())
        self.setCursor(Qt.CursorShape.PointingHandCursor if cell and cell.cpu in self._allowed else Qt.CursorShape.ArrowCursor)
        if self._brush is not None and cell is not None and event.buttons() & Qt.MouseButton.LeftButton:
            self._go(cell.cpu)
            self._paint(cell.cpu)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._brush = None

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            cell = self._layout.at(event.pos().x(), event.pos().y())
            QToolTip.showText(event.globalPos(), "" if cell is None else self.sentence(cell.cpu), self)
            return True
        return super().event(event)

    # --- keyboard ----------------------------------------------------------------------------------------------------

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = Qt.Key(event.key())
        self._focus_seen = True
        if key in _STEPS:
            brush = self._current in self._chosen if event.modifiers() & Qt.KeyboardModifier.ShiftModifier else None
            self._go(self._layout.step(self._current, *_STEPS[key]))
            if brush is not None:
                self._brush = brush
                self._paint(self._current)
                self._brush = None
        elif key == Qt.Key.Key_Space:
            self._brush = self._current not in self._chosen
            self._paint(self._current)
            self._brush = None
        elif key == Qt.Key.Key_A and event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self.choose(every_core(self._topology))
            self.painted.emit()
        elif key in (Qt.Key.Key_Home, Qt.Key.Key_End):
            self._go(self._layout.cells[0 if key == Qt.Key.Key_Home else -1].cpu)
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        self._focus_seen = event.reason() in KEYBOARD_REASONS
        super().focusInEvent(event)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.update()

    def _go(self, cpu: int) -> None:
        if cpu != self._current:
            self._current = cpu
            self._describe()
            self.update()

    def _paint(self, cpu: int) -> None:
        after = self._chosen | {cpu} if self._brush else self._chosen - {cpu}
        if cpu in self._allowed and after != self._chosen:
            self._chosen = after
            self._describe()
            self.update()
            self.painted.emit()

    def _describe(self) -> None:
        """What is read aloud."""
        self.setAccessibleDescription(
            self.tr("{n} of {all} work. {current}").format(
                n=len(self._chosen), all=len(self._allowed), current=self.sentence(self._current)
            )
        )
        QAccessible.updateAccessibility(QAccessibleEvent(self, QAccessible.Event.DescriptionChanged))

    # --- paint -------------------------------------------------------------------------------------------------------

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        for box in self._layout.boxes:
            self._paint_box(painter, box)
        for cell in self._layout.cells:
            self._paint_cell(painter, cell)
        if self.hasFocus() and self._focus_seen:
            cell = next(one for one in self._layout.cells if one.cpu == self._current)
            paint.focus_ring(painter, QRectF(cell.x - 2, cell.y - 2, cell.width + 4, cell.height + 4), _RADIUS + 2)

    def _paint_box(self, painter: QPainter, box: Box) -> None:
        if box.l3 < 0:
            paint.text(painter, box.x, box.y + 16, self.tr("Node {n}").format(n=box.node), 13, 600, "text")
            return
        paint.rounded(painter, QRectF(box.x, box.y, box.width, box.height), 8, "surface", "line")
        paint.text(painter, box.x + 8, box.y + 14, f"L3 {box.l3}", 10.5, 500, "text3", max_width=box.width - 12)

    def _paint_cell(self, painter: QPainter, cell: Cell) -> None:
        rect, works = QRectF(cell.x, cell.y, cell.width, cell.height), cell.cpu in self._chosen
        usable = cell.cpu in self._allowed
        painter.setOpacity(1.0 if usable else 0.4)
        paint.rounded(painter, rect, _RADIUS, "accent" if works else "overlay", None if works else "line2")
        ink = "on_accent" if works else "text2"
        middle = cell.x + cell.width / 2
        paint.text(painter, middle, cell.y + 15, str(cell.cpu), 9, 500, ink, "center")
        use = self._use.get(cell.cpu)
        if use is not None:
            room = QRectF(cell.x + 3, cell.y + cell.height - 7, cell.width - 6, 3)
            paint.rounded(painter, room, 1.5, theme.color(ink, 0.25))
            room.setWidth(max(1.0, room.width() * min(100.0, use) / 100))
            paint.rounded(painter, room, 1.5, ink)
        if cell.cpu in self._kept:
            paint.dot(painter, cell.x + cell.width - 4, cell.y + 4, 2, "warn")
        if not usable:
            paint.line(painter, cell.x + 3, cell.y + cell.height - 3, cell.x + cell.width - 3, cell.y + 3, "text3")
        painter.setOpacity(1.0)
