"""BoardDrag: one drag over the board: what is tried by holding it over a column, and what is shown of it."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QObject, QPoint, Qt, Signal
from PySide6.QtGui import QDrag
from PySide6.QtWidgets import QWidget

from app.ops.placement_cards import CardId
from app.ops.placement_desk import PlacementDesk
from app.ops.placement_nodes import NodeSplitter
from app.placement.board_selection import BoardSelection
from app.placement.card_list import CardList
from app.placement.drag_picture import HOT_SPOT, drag_picture
from app.placement.drag_preview import DragPreview, preview_lines
from app.qtmodels.placement_mime import card_mime
from app.qtmodels.placement_rows import key_of, row_for
from engine.api.pure import Device, Numa, Prediction

PICTURE_WIDTH = (180.0, 226.0)
"""Least and most of a card that is dragged."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Cards held over a device. split: they would be split over all memory nodes; refusal: why they may not be dropped; then:
    what the drop would give, None: nothing moves."""

    cards: frozenset[CardId]
    device: Device
    split: bool
    refusal: str
    then: Prediction | None


class BoardDrag(QObject):
    """tried() when another trial is shown, or none. board: the widget that the preview lies on."""

    tried = Signal()

    def __init__(self, desk: PlacementDesk, selection: BoardSelection, nodes: NodeSplitter, board: QWidget) -> None:
        super().__init__(board)
        self._desk, self._selection, self._nodes, self._board = desk, selection, nodes, board
        self._trial: Trial | None = None
        self._over: CardList | None = None
        self.preview = DragPreview(board)

    @property
    def trial(self) -> Trial | None:
        """What is held over which column."""
        return self._trial

    def start(self, source: CardList) -> None:
        """Drags what is selected, of all lists; returns when it was dropped or given up."""
        drag = self.make(source)
        if drag is None:
            return
        drag.exec(Qt.DropAction.MoveAction)
        self.leave()

    def make(self, source: CardList) -> QDrag | None:
        """The drag of what is selected and not pinned; None: there is nothing of that kind."""
        chosen = self._selection.ids()
        cards = [card for card in self._desk.cards() if card.id in chosen and not card.pinned]
        if not cards:
            return None
        width = max(PICTURE_WIDTH[0], min(PICTURE_WIDTH[1], source.viewport().width() - 40))
        drag = QDrag(source)
        drag.setMimeData(card_mime(card.id for card in cards))
        drag.setPixmap(drag_picture(row_for(cards), len(cards), width, source.devicePixelRatioF()))
        drag.setHotSpot(HOT_SPOT)
        return drag

    def hold(self, over: CardList, cards: frozenset[CardId], at: QPoint, *, split: bool = False) -> bool:
        """Cards are held over a list. at: in its viewport; split: to be split over all memory nodes, where it is of one. Returns
        whether they may be dropped there."""
        device = over.column.device
        split = split and isinstance(device, Numa)
        if self._trial is None or (self._trial.cards, self._trial.device, self._trial.split) != (cards, device, split):
            self._try(over, cards, device, split=split)
        trial, now = self._trial, self._desk.prediction
        if trial is None or now is None:
            return False
        pointer = over.viewport().mapTo(self._board, at)
        if trial.then is not None:
            self.preview.show_at(pointer, preview_lines(now, trial.then, device))
        else:  # nothing would move, or the head of the column says why it may not
            self.preview.hide()
        return not trial.refusal

    def leave(self) -> None:
        """Nothing is held over the board any more."""
        self.preview.hide()
        if self._over is not None:
            self._over.set_insertion(None)
            self._over = None
        if self._trial is not None:
            self._trial = None
            self.tried.emit()

    def _try(self, over: CardList, cards: frozenset[CardId], device: Device, *, split: bool) -> None:
        if self._over is not None and self._over is not over:
            self._over.set_insertion(None)
        refusal = self._nodes.refusal(cards) if split else self._desk.refusal(cards, device)
        then = None if refusal else self._nodes.preview(cards) if split else self._desk.preview(cards, device)
        self._trial, self._over = Trial(cards, device, split, refusal, then), over
        moving = [card for one in cards if (card := self._desk.card(one)) is not None and card.device != device]
        first = min((key_of(card) for card in moving), default=None)
        over.set_insertion(None if refusal or first is None else over.column.place_of(first))
        self.tried.emit()
