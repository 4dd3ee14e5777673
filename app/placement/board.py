"""PlacementBoard: a column of cards for each device over one placement desk; drag and drop, keyboard, selection over all columns.

It shows what the desk says and asks the desk for what the user wants; it never changes a placement by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from app.ops.placement_cards import Card, CardId, Kind
from app.ops.placement_desk import PlacementDesk
from app.ops.placement_nodes import NodeSplitter
from app.placement.board_drag import BoardDrag
from app.placement.board_keys import BoardKey, key_of
from app.placement.board_selection import BoardSelection
from app.placement.card_list import CardList
from app.placement.column_header import HeadState
from app.placement.device_column import DeviceColumn
from app.qtmodels.placement_columns import PlacementColumns
from app.qtmodels.placement_filter import parse_filter
from app.qtmodels.placement_rows import Row
from app.widgets.format import rate_text
from engine.api.pure import Device, DevicePrediction, Prediction

GAP = 12


class PlacementBoard(QWidget):
    """selection_changed(); apply_requested() for Ctrl+Enter; filter_requested() for `/`; grouped_changed(bool) for `G`."""

    selection_changed = Signal()
    apply_requested = Signal()
    filter_requested = Signal()
    grouped_changed = Signal(bool)
    workers_requested = Signal(int)

    def __init__(self, desk: PlacementDesk, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._desk = desk
        self._columns = PlacementColumns(desk, self)
        self._widgets: dict[Device, DeviceColumn] = {}
        self._before: QWidget | None = None
        self._keys: dict[BoardKey, Callable[[CardList | None], object]] = {
            "auto fit": lambda _list: self._desk.auto_fit(),
            "expand": self._toggle_group,
            "group": lambda _list: self.set_grouped(not self._columns.layout.grouped),
            "pin": self._toggle_pins,
            "nodes": lambda one: self._split(self.selection.acting_on(one)),
            "filter": lambda _list: self.filter_requested.emit(),
            "apply": lambda _list: self.apply_requested.emit(),
            "undo": lambda _list: self._desk.undo(),
            "redo": lambda _list: self._desk.redo(),
            "select group": lambda one: self.selection.select_group(one or self.lists()[0]),
            "clear": lambda _list: self.selection.clear(),
            "left": lambda one: self._step(one, -1),
            "right": lambda one: self._step(one, 1),
            "toggle": self._toggle_group,
        }
        self._scroll = QScrollArea(self)
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll.setWidgetResizable(True)
        self._scroll.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._scroll.setStyleSheet("QScrollArea, QWidget#columns { background: transparent; }")
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._scroll)
        self.setAccessibleName(self.tr("Placement board"))
        self.selection = BoardSelection(self._columns, self)
        self.nodes = NodeSplitter(desk)
        self.drag = BoardDrag(desk, self.selection, self.nodes, self)
        self._connect()
        self._make_columns()

    def _connect(self) -> None:
        self._columns.columns_changed.connect(self._make_columns)
        self._desk.predicted.connect(self._show)
        self._desk.changed.connect(self._show)
        self._desk.state_changed.connect(self._show)
        self.selection.changed.connect(self.selection_changed)
        self.drag.tried.connect(self._show)

    # --- what the page asks for --------------------------------------------------------------------------------------

    @property
    def columns(self) -> PlacementColumns:
        """The models."""
        return self._columns

    def column(self, device: Device) -> DeviceColumn:
        """The widget of a device. Raises: KeyError."""
        return self._widgets[device]

    def lists(self) -> tuple[CardList, ...]:
        """From the left."""
        return tuple(one.cards for one in self._widgets.values())

    def selected_cards(self) -> tuple[Card, ...]:
        """In the order of the board."""
        chosen = self.selection.ids()
        return tuple(card for card in self._desk.cards() if card.id in chosen)

    def select(self, cards: Iterable[CardId]) -> None:
        """Selects cards that are shown."""
        self.selection.select(cards)

    def move_selected(self, device: Device) -> bool:
        """Moves what is selected, else the card that has the keyboard. False: nothing moved."""
        return self._said(changed=self._desk.move(self.selection.acting_on(self._focused()), device))

    def split_selected(self) -> bool:
        """Splits what is selected over all memory nodes, or brings it to one again. False: nothing changed."""
        return self._split(self.selection.acting_on(self._focused()))

    def _split(self, cards: Iterable[CardId]) -> bool:
        return self._said(changed=self.nodes.toggle(cards))

    def _said(self, *, changed: bool) -> bool:
        """Who sees the board sees what became of a step; others are told."""
        if changed and self._desk.prediction is not None:
            said = self.tr("{step}: {rate} tokens a second").format(
                step=self._desk.undo_text, rate=rate_text(self._desk.prediction.decode_tok_s)
            )
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, said))
        return changed

    def set_filter(self, text: str, kinds: frozenset[Kind] | None = None) -> None:
        """Shows only cards that a text such as `exp 10-20` is about, of some kinds; kinds None: of all."""
        self._columns.set_filter(parse_filter(text, kinds))

    def set_grouped(self, grouped: bool) -> None:
        """Ranges of layers together, or every card on its own."""
        if grouped != self._columns.layout.grouped:
            self._columns.set_grouped(grouped)
            self.grouped_changed.emit(grouped)

    # --- columns -----------------------------------------------------------------------------------------------------

    def _make_columns(self) -> None:
        inner = QWidget()
        inner.setObjectName("columns")
        row = QHBoxLayout(inner)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(GAP)
        self._widgets = {}
        for device in self._desk.devices():
            model = self._columns.column(device.device)
            if model is None:
                continue
            column = DeviceColumn(model, device, self._may_drop, inner)
            column.fix_clicked.connect(self._desk.fix)
            column.workers_clicked.connect(self.workers_requested)
            column.cards.drag_wanted.connect(lambda source=column.cards: self.drag.start(source))
            column.cards.drag_left.connect(self.drag.leave)
            column.cards.toggle_wanted.connect(self._toggle_row)
            column.cards.split_wanted.connect(self.nodes.split)
            column.cards.set_key_taker(self._take_key)
            row.addWidget(column, 1)
            self._widgets[device.device] = column
        self.drag.leave()
        self._scroll.setWidget(inner)
        self._order_tabs()
        self.selection.set_lists(self.lists())
        self._show()

    def tab_after(self, before: QWidget) -> None:
        """Tab comes from that widget, in the same window, to the columns where they stand, and not behind all there is."""
        self._before = before
        self._order_tabs()

    def _order_tabs(self) -> None:
        stops = [stop for column in self._widgets.values() for stop in column.tab_stops()]
        for previous, stop in pairwise([self._before, *stops] if self._before is not None else stops):
            QWidget.setTabOrder(previous, stop)

    def _show(self, _what: object = None) -> None:
        """Figures of all columns, as they are or as a drag would make them."""
        trial, prediction = self.drag.trial, self._desk.prediction
        then = None if trial is None else trial.then
        over = [one.device for one in prediction.devices if one.over] if prediction is not None else []
        dim = self._desk.state == "estimating"
        for device in self._desk.devices():
            column = self._widgets.get(device.device)
            if column is None:
                continue
            target = trial is not None and trial.device == device.device
            note = trial.refusal if trial is not None and target else ""
            if not note and device.lost and column.cards.column.rows():
                note = self.tr("This device is gone. Its cards stay here until you move them.")
            fix = self._fix_label() if over[:1] == [device.device] and then is None else ""
            now = _of(prediction, device.device)
            state = HeadState(device, now, _of(then, device.device), note, fix, dim)
            column.set_state(state, self._desk.n_ctx, target=target)
            if target:
                self._scroll.ensureWidgetVisible(column, GAP, 0)

    def _fix_label(self) -> str:
        """`Fix: move 2 layers`."""
        proposal = self._desk.proposal
        if proposal is None:
            return ""
        layers = {card.layer for card in proposal.cards}
        return self.tr("Fix: move 1 layer") if len(layers) == 1 else self.tr("Fix: move %n layers", "", len(layers))

    def _may_drop(self, over: CardList, cards: frozenset[CardId], at: QPoint, split: bool) -> bool:
        return self.drag.hold(over, cards, at, split=split)

    # --- keyboard ----------------------------------------------------------------------------------------------------

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if not self._take_key(event):
            super().keyPressEvent(event)

    def _take_key(self, event: QKeyEvent) -> bool:
        """Whether a key was for the board."""
        key = key_of(event)
        if key is None or not self._widgets:
            return False
        if isinstance(key, int):
            devices = self._desk.devices()
            if key <= len(devices):
                self.move_selected(devices[key - 1].device)
            return True
        self._keys[key](self._focused())
        return True

    def _focused(self) -> CardList | None:
        return next((one for one in self.lists() if one.hasFocus()), None)

    def _step(self, one: CardList | None, by: int) -> None:
        """The keyboard goes to the list beside, to the card at the same height."""
        lists = self.lists()
        at = 0 if one is None else lists.index(one) + by
        if not 0 <= at < len(lists):
            return
        there = lists[at]
        y = 0 if one is None else one.visualRect(one.currentIndex()).center().y()
        there.setFocus(Qt.FocusReason.ShortcutFocusReason)
        there.take_keyboard(y)
        self._scroll.ensureWidgetVisible(self._widgets[there.column.device], GAP, 0)

    def _toggle_pins(self, one: CardList | None) -> None:
        cards = self.selection.acting_on(one)
        on = any(card.id in cards and not card.pinned for card in self._desk.cards())
        self._desk.pin(cards, on)

    def _toggle_group(self, one: CardList | None) -> None:
        """Opens or closes the group that the current card is, or belongs to."""
        rows = () if one is None else one.column.rows()
        current = None if one is None else one.row_at(one.currentIndex())
        if one is None or current is None:
            return
        group = next((row for row in rows if row.is_group and current.ids <= row.ids), None)
        if group is not None:
            self._toggle_row(group)
            number = next((i for i, row in enumerate(one.column.rows()) if row.key == group.key), 0)
            one.setCurrentIndex(one.column.index(number))

    def _toggle_row(self, row: Row) -> None:
        self._columns.set_expanded(row.ids, not row.expanded)


def _of(prediction: Prediction | None, device: Device) -> DevicePrediction | None:
    """A device that went away is in no prediction."""
    return next((one for one in prediction.devices if one.device == device), None) if prediction is not None else None
