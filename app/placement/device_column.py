"""DeviceColumn: one device on the board: its head, its cards, a warning where room is little, and what buffers take."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Signal
from PySide6.QtGui import QPainter, QPainterPath, QPaintEvent, QResizeEvent
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
_FOOT, _GAP, _SIDE, _RADIUS = 39, 8, 10, 12


class DeviceColumn(QWidget):
    """fix_clicked() for the button of the head."""

    fix_clicked = Signal()

    def __init__(self, column: PlacementColumn, row: DeviceRow, may_drop: MayDrop, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._target = False
        self.head = ColumnHeader(row, self)
        self.cards = CardList(column, may_drop, self)
        self.warning = RoomWarning(self)
        self.setMinimumWidth(LEAST_WIDTH)
        self.cards.setAccessibleName(self.head.accessibleName())
        self.head.fix_clicked.connect(self.fix_clicked)
        self.head.height_changed.connect(self._place)
        theme.hub().changed.connect(self.update)

    def set_state(self, state: HeadState, n_ctx: int, *, target: bool) -> None:
        """Show figures. target: what is dragged is over this column."""
        self._target = target
        self.head.set_state(state)
        self.cards.setAccessibleName(self.head.accessibleName())
        self.cards.setEnabled(not state.dim)
        self.cards.set_faded(state.dim or state.row.lost)
        if self.warning.set_lines(little_room(state.shown, n_ctx, would=state.then is not None)):
            self._place()
        self.update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def _place(self) -> None:
        width, height = self.width(), self.height()
        top = self.head.wanted_height()
        self.head.setGeometry(0, 0, width, top)
        bottom = height - _FOOT
        if not self.warning.isHidden():
            bottom -= WARNING_HEIGHT + 14
            self.warning.setGeometry(_SIDE, bottom, width - 2 * _SIDE, WARNING_HEIGHT)
        self.cards.setGeometry(0, top + _GAP, width - 1, max(0, bottom - top - _GAP - 1))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        state, rect = self.head.state, QRectF(self.rect())
        refused = self._target and bool(state.note)
        over = state.shown is not None and state.shown.over > 0
        frame = "err" if refused or over else "accent" if self._target else "line"
        shape = QPainterPath()
        shape.addRoundedRect(rect, _RADIUS, _RADIUS)
        painter.fillPath(shape, theme.color("panel"))
        if self._target and not refused:
            painter.fillPath(shape, theme.color("accent", 0.035))
        if over or refused:
            painter.save()
            painter.setClipPath(shape)
            painter.fillRect(QRectF(0, 0, rect.width(), self.head.height()), theme.color("err", 0.08))
            painter.restore()
        foot = self.height() - _FOOT + 0.5
        paint.line(painter, 1, foot, self.width() - 1, foot)
        paint.rounded(painter, rect, _RADIUS, None, frame, 1.5 if self._target else 1)
        there = state.shown
        if state.dim or state.row.lost:
            painter.setOpacity(FADED)
        paint.text(painter, 14, foot + 24.5, self.tr("Buffers, reserved"), 11, 400, "text3")
        if there is not None:
            paint.text(
                painter,
                self.width() - 14,
                foot + 24.5,
                exact_bytes(there.buffers) if there.buffers else self.tr("none"),
                11,
                500,
                "text2",
                "right",
            )
