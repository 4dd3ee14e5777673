"""DeviceColumn: one device on the board: its head, its cards, a warning where room is little, and what buffers take."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QModelIndex, QRectF, Signal
from PySide6.QtGui import (
    QDragEnterEvent,
    QDragLeaveEvent,
    QDragMoveEvent,
    QDropEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QRegion,
    QResizeEvent,
)
from PySide6.QtWidgets import QWidget

from app import theme
from app.ops.placement_planning import DeviceRow
from app.placement.card_delegate import FADED
from app.placement.card_list import CardList, MayDrop
from app.placement.column_header import ColumnHeader, HeadState
from app.placement.room_warning import HEIGHT as WARNING_HEIGHT
from app.placement.room_warning import RoomWarning, little_room
from app.qtmodels.placement_columns import PlacementColumn
from app.widgets import paint
from app.widgets.format import exact_bytes

LEAST_WIDTH = 228
_FOOT, _GAP, _SIDE, _RADIUS, _FRAME = 39, 8, 10, 12, 2


class DeviceColumn(QWidget):
    """fix_clicked() and workers_clicked(node) for the buttons of the head."""

    fix_clicked = Signal()
    workers_clicked = Signal(int)

    def __init__(self, column: PlacementColumn, row: DeviceRow, may_drop: MayDrop, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._look = _Look()
        self._warned = False
        self.head = ColumnHeader(row, self)
        self.cards = CardList(column, may_drop, self)
        self.warning = RoomWarning(self)
        self.setMinimumWidth(LEAST_WIDTH)
        self.setAcceptDrops(True)
        self.cards.setAccessibleName(self.head.accessibleName())
        self.head.fix_clicked.connect(self.fix_clicked)
        self.head.workers_clicked.connect(self.workers_clicked)
        self.head.height_changed.connect(self._place)
        theme.hub().changed.connect(self.update)

    def set_state(self, state: HeadState, n_ctx: int, *, target: bool) -> None:
        """Show figures. target: what is dragged is over this column."""
        before, self._look = self._look, _look_of(state, target=target)
        buffers = _buffers(self.head.state) != _buffers(state)
        self.head.set_state(state)
        self.cards.setAccessibleName(self.head.accessibleName())
        self.cards.setEnabled(not state.dim)
        self.cards.set_faded(state.dim or state.row.lost)
        self.warning.set_lines(little_room(state.shown, n_ctx, would=state.then is not None))
        # Room is made for what stays. A warning of the drag lies over the cards: to lay them out anew takes longer than a frame.
        warned = bool(little_room(state.now, n_ctx, would=False)[0])
        if warned != self._warned:
            self._warned = warned
            self._place()
        if before != self._look:
            # The frame alone: during a drag this happens with each column that is passed, and cards take longest to paint.
            self.update(QRegion(self.rect()) - QRegion(self.rect().adjusted(_FRAME, self.head.height(), -_FRAME, -_FOOT)))
        elif buffers:
            self.update(0, self.height() - _FOOT, self.width(), _FOOT)

    def tab_stops(self) -> tuple[QWidget, ...]:
        """What takes the keyboard, in order."""
        return (*self.head.buttons(), self.cards)

    # Over the head and the foot as over the cards: the whole column is the device.

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        self.cards.dragEnterEvent(event)

    def dragMoveEvent(self, event: QDragMoveEvent) -> None:
        self.cards.hold(event, self.cards.viewport().mapFrom(self, event.position().toPoint()))

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        self.cards.dragLeaveEvent(event)

    def dropEvent(self, event: QDropEvent) -> None:
        self.cards.drag_left.emit()
        if not self.cards.take_split(event):
            self.cards.column.dropMimeData(event.mimeData(), event.dropAction(), -1, -1, QModelIndex())

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def _place(self) -> None:
        width, height = self.width(), self.height()
        top = self.head.wanted_height()
        self.head.setGeometry(0, 0, width, top)
        bottom = height - _FOOT
        warning = bottom - WARNING_HEIGHT - 14
        self.warning.setGeometry(_SIDE, warning, width - 2 * _SIDE, WARNING_HEIGHT)
        if self._warned:
            bottom = warning
        self.cards.setGeometry(_FRAME, top + _GAP, width - 2 * _FRAME, max(0, bottom - top - _GAP - 1))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect, look = QRectF(self.rect()), self._look
        shape = QPainterPath()
        shape.addRoundedRect(rect, _RADIUS, _RADIUS)
        painter.fillPath(shape, theme.color("panel"))
        foot = self.height() - _FOOT + 0.5
        if look.tint:
            painter.save()
            painter.setClipPath(shape)
            tint = theme.color(look.tint, 0.08 if look.tint == "err" else 0.06)
            painter.fillRect(QRectF(0, 0, rect.width(), self.head.height()), tint)
            painter.restore()
        paint.line(painter, 1, foot, self.width() - 1, foot)
        paint.rounded(painter, rect, _RADIUS, None, look.frame, look.width)
        if look.faded:
            painter.setOpacity(FADED)
        paint.text(painter, 14, foot + 24.5, self.tr("Buffers, reserved"), 11, 400, "text3")
        buffers = _buffers(self.head.state)
        text = "" if buffers is None else exact_bytes(buffers) if buffers else self.tr("none")
        paint.text(painter, self.width() - 14, foot + 24.5, text, 11, 500, "text2", "right")


@dataclass(frozen=True, slots=True)
class _Look:
    """Of the frame; tint: of the head, empty for none."""

    frame: str = "line"
    width: float = 1.0
    tint: str = ""
    faded: bool = False


def _look_of(state: HeadState, *, target: bool) -> _Look:
    refused = target and bool(state.note)
    over = state.shown is not None and state.shown.over > 0
    frame = "err" if refused or over else "accent" if target else "line"
    tint = "err" if refused or over else "accent" if target else ""
    return _Look(frame, 1.5 if target else 1.0, tint, state.dim or state.row.lost)


def _buffers(state: HeadState) -> int | None:
    return None if state.shown is None else state.shown.buffers
