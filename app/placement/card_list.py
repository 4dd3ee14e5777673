"""CardList: the cards of one device: selection, rubber band, drags that begin and end here. What they mean is said by signals."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QItemSelectionModel, QModelIndex, QPoint, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QDragEnterEvent,
    QDragLeaveEvent,
    QDragMoveEvent,
    QDropEvent,
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QAbstractItemView, QFrame, QListView, QWidget

from app.ops.placement_cards import CardId
from app.placement.card_delegate import GAP, SIDE, CardDelegate, card_rect, chevron_rect
from app.qtmodels.placement_columns import CardRole, PlacementColumn
from app.qtmodels.placement_mime import cards_in
from app.qtmodels.placement_rows import Row
from app.widgets import paint
from app.widgets.painted_button import KEYBOARD_REASONS
from engine.api.pure import Numa

MayDrop = Callable[["CardList", frozenset[CardId], QPoint, bool], bool]
"""Told what is dragged over which list, where in its viewport, and whether with Ctrl; says whether it may be dropped."""


class CardList(QListView):
    """drag_wanted(): the mouse pulls at what is selected; drag_left(): what was dragged over the list went on or was dropped;
    toggle_wanted(Row): a group is to be opened or closed; chosen_alone(): a click without Ctrl or Shift; selected();
    split_wanted(cards): dropped with Ctrl on a memory node, they are to be split over all of them.
    """

    drag_wanted = Signal()
    drag_left = Signal()
    toggle_wanted = Signal(object)
    chosen_alone = Signal()
    selected = Signal()
    split_wanted = Signal(object)

    def __init__(self, column: PlacementColumn, may_drop: MayDrop, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._may_drop = may_drop
        self._take_key: Callable[[QKeyEvent], bool] = lambda _event: False
        self._insert_at: int | None = None
        self._cards = CardDelegate(self)
        self.setModel(column)
        self.setItemDelegate(self._cards)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setDragDropMode(QAbstractItemView.DragDropMode.DragDrop)
        self.setDefaultDropAction(Qt.DropAction.MoveAction)
        self.setDropIndicatorShown(False)
        self.setSelectionRectVisible(True)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setResizeMode(QListView.ResizeMode.Adjust)
        self.setMouseTracking(True)
        self.viewport().setAutoFillBackground(False)
        self.setStyleSheet("QListView { background: transparent; border: none; }")
        self.verticalScrollBar().setSingleStep(29)
        self.verticalScrollBar().rangeChanged.connect(lambda _low, high: self._cards.set_scrolled(high > 0))
        self.selectionModel().selectionChanged.connect(lambda _more, _less: self.selected.emit())

    @property
    def column(self) -> PlacementColumn:
        """The rows."""
        model = self.model()
        assert isinstance(model, PlacementColumn)
        return model

    def set_key_taker(self, take: Callable[[QKeyEvent], bool]) -> None:
        """Who is asked about each key first; it says whether the key was for it."""
        self._take_key = take

    def set_faded(self, faded: bool) -> None:
        """Whether the cards are drawn as what is not there."""
        if faded != self._cards.faded:
            self._cards.faded = faded
            self.viewport().update()

    # --- selection ---------------------------------------------------------------------------------------------------

    def row_at(self, index: QModelIndex) -> Row | None:
        """The row of an index."""
        return self.column.row_at(index)

    def selected_ids(self) -> frozenset[CardId]:
        """What is selected, groups as their cards."""
        return frozenset(card for index in self.selectedIndexes() for card in index.data(CardRole.CARDS) or ())

    def indexAt(self, point: QPoint) -> QModelIndex:
        """None beside and between the cards, so that a rubber band can be begun there."""
        index = super().indexAt(point)
        row = self.row_at(index)
        inside = row is not None and self.box_of(index, row).contains(point)
        return index if inside else QModelIndex()

    def box_of(self, index: QModelIndex, row: Row) -> QRect:
        """The box of a card in the viewport."""
        return card_rect(self.visualRect(index), row, self._cards.right)

    def take_keyboard(self, y: int) -> None:
        """Makes the card at a height the current one, without selecting it."""
        n_rows = self.column.rowCount()
        at = next((i for i in range(n_rows) if self.visualRect(self.column.index(i)).bottom() >= y), n_rows - 1)
        if n_rows:
            flags = QItemSelectionModel.SelectionFlag.NoUpdate
            self.selectionModel().setCurrentIndex(self.column.index(at), flags)

    def sizeHint(self) -> QSize:
        return QSize(220, 400)

    # --- mouse and keys ----------------------------------------------------------------------------------------------

    def mousePressEvent(self, event: QMouseEvent) -> None:
        index = self.indexAt(event.position().toPoint())
        row = self.row_at(index)
        chevron = QRect() if row is None or not row.is_group else chevron_rect(self.box_of(index, row))
        if event.button() == Qt.MouseButton.LeftButton and chevron.contains(event.position().toPoint()):
            self.toggle_wanted.emit(row)
            return
        if not event.modifiers() & (Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier):
            self.chosen_alone.emit()
        super().mousePressEvent(event)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        row = self.row_at(self.indexAt(event.position().toPoint()))
        if row is not None and row.is_group:
            self.toggle_wanted.emit(row)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        if event.reason() in KEYBOARD_REASONS and not self.currentIndex().isValid():
            self.take_keyboard(0)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if not self._take_key(event):
            super().keyPressEvent(event)

    # --- drag and drop -----------------------------------------------------------------------------------------------

    def startDrag(self, actions: Qt.DropAction) -> None:
        self.drag_wanted.emit()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        # Also over a device that refuses: the moves behind it are where the reason is given.
        event.setAccepted(bool(cards_in(event.mimeData())))

    def dragMoveEvent(self, event: QDragMoveEvent) -> None:
        # Not Qt's own handlers: they paint the whole list at every step, for an indicator that is not shown.
        at = event.position().toPoint()
        margin = self.autoScrollMargin()
        if not self.viewport().rect().adjusted(0, margin, 0, -margin).contains(at):
            self.startAutoScroll()
        self.hold(event, at)

    def hold(self, event: QDragMoveEvent, at: QPoint) -> None:
        """Something is held over the list or what belongs to it. at: in the viewport, or beside it."""
        cards = self.column.known(cards_in(event.mimeData()))
        if cards and self._may_drop(self, cards, at, with_ctrl(event)):
            event.setDropAction(Qt.DropAction.MoveAction)
            event.accept()
        else:
            event.ignore()

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        self.stopAutoScroll()
        self.drag_left.emit()

    def dropEvent(self, event: QDropEvent) -> None:
        self.stopAutoScroll()
        self.drag_left.emit()
        if self.take_split(event):
            return
        if event.source() is self:  # the order of cards is given, so there is nothing to do
            event.ignore()
            return
        super().dropEvent(event)

    def take_split(self, event: QDropEvent) -> bool:
        """Whether a drop was one that splits cards over memory nodes: with Ctrl, on one of them."""
        if not with_ctrl(event) or not isinstance(self.column.device, Numa):
            return False
        event.setDropAction(Qt.DropAction.MoveAction)
        event.ignore()  # the list that was dragged from must not take its rows away
        self.split_wanted.emit(self.column.known(cards_in(event.mimeData())))
        return True

    def set_insertion(self, at: int | None) -> None:
        """Where the line is shown that tells where cards would be put in: before the row of that number; None: nowhere."""
        if at == self._insert_at:
            return
        for one in (self._insert_at, at):
            if one is not None:
                self.viewport().update(0, round(self._insertion_y(one)) - 6, self.viewport().width(), 12)
        self._insert_at = at

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self.column.rowCount() and self._insert_at is None:
            self._paint_empty()
        if self._insert_at is None:
            return
        painter = QPainter(self.viewport())
        paint.begin(painter)
        y = self._insertion_y(self._insert_at)
        paint.rounded(painter, QRectF(SIDE, y - 1.5, self.viewport().width() - SIDE - self._cards.right, 3), 1.5, "accent")
        paint.dot(painter, SIDE, y, 4, "accent")

    def _paint_empty(self) -> None:
        painter = QPainter(self.viewport())
        paint.begin(painter)
        middle, width = self.viewport().width() / 2, self.viewport().width() - 2 * SIDE
        paint.text(painter, middle, 34, self.tr("No cards here"), 12, 500, "text3", "center", max_width=width)

    def _insertion_y(self, at: int) -> float:
        n_rows = self.column.rowCount()
        if at < n_rows:
            return max(5.0, self.visualRect(self.column.index(at)).top() - GAP / 2)
        last = self.visualRect(self.column.index(n_rows - 1)).bottom() if n_rows else 2
        return min(last + 3.5, self.viewport().height() - 6.0)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.scheduleDelayedItemsLayout()


def with_ctrl(event: QDropEvent) -> bool:
    """Whether Ctrl was held at a step of a drag."""
    return bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
