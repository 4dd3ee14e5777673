"""PlacementColumns: a list model for each device over one placement desk, all shown in one way: grouped, filtered, opened.

A column listens to the signal that names the changed devices. What is dropped on it is a step of the desk; the view never removes
rows itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

from PySide6.QtCore import QAbstractListModel, QMimeData, QModelIndex, QObject, QPersistentModelIndex, Qt, Signal

from app.ops.placement_cards import CardId
from app.ops.placement_desk import PlacementDesk
from app.ops.placement_planning import device_name
from app.qtmodels.placement_filter import CardFilter
from app.qtmodels.placement_mime import MIME, card_mime, cards_in
from app.qtmodels.placement_rows import Key, Layout, Row, rows_of
from engine.api.pure import Device

Index = QModelIndex | QPersistentModelIndex
_NOWHERE = QModelIndex()


class CardRole(IntEnum):
    """ROW: the Row; CARDS: the frozenset of what moves with it."""

    ROW = Qt.ItemDataRole.UserRole + 1
    CARDS = Qt.ItemDataRole.UserRole + 2


class PlacementColumn(QAbstractListModel):
    """The rows of one device. about_to_change() and rows_changed() around every change, for who keeps a selection over it."""

    about_to_change = Signal()
    rows_changed = Signal()

    def __init__(self, desk: PlacementDesk, device: Device, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._desk = desk
        self.device = device
        self._rows: tuple[Row, ...] = ()

    # --- QAbstractItemModel ------------------------------------------------------------------------------------------

    def rowCount(self, parent: Index = _NOWHERE) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        row = self.row_at(index)
        if row is None:
            return None
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return row.title
            case Qt.ItemDataRole.AccessibleTextRole | Qt.ItemDataRole.ToolTipRole:
                return row.spoken(device_name(self.device))
            case CardRole.ROW:
                return row
            case CardRole.CARDS:
                return row.ids
            case _:
                return None

    def flags(self, index: Index) -> Qt.ItemFlag:
        row = self.row_at(index)
        if row is None:
            return Qt.ItemFlag.ItemIsDropEnabled
        flags = Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemNeverHasChildren
        return flags if row.pinned else flags | Qt.ItemFlag.ItemIsDragEnabled

    def supportedDropActions(self) -> Qt.DropAction:
        return Qt.DropAction.MoveAction

    def supportedDragActions(self) -> Qt.DropAction:
        return Qt.DropAction.MoveAction

    def mimeTypes(self) -> list[str]:
        return [MIME]

    def mimeData(self, indexes: Sequence[QModelIndex]) -> QMimeData:
        return card_mime(card for index in indexes for card in index.data(CardRole.CARDS) or ())

    def canDropMimeData(self, data: QMimeData, action: Qt.DropAction, row: int, column: int, parent: Index) -> bool:
        cards = self.known(cards_in(data))
        return bool(cards) and not self._desk.refusal(cards, self.device)

    def dropMimeData(self, data: QMimeData, action: Qt.DropAction, row: int, column: int, parent: Index) -> bool:
        cards = self.known(cards_in(data))
        if cards:
            self._desk.move(cards, self.device)
        # The rows have changed already; True would make the view that was dragged from remove them again.
        return False

    # --- additions ---------------------------------------------------------------------------------------------------

    def known(self, cards: Iterable[CardId]) -> frozenset[CardId]:
        """Those of the cards that the present model has."""
        return frozenset(one for one in cards if self._desk.card(one) is not None)

    def row_at(self, index: Index) -> Row | None:
        """The row of an index."""
        return self._rows[index.row()] if index.isValid() and index.row() < len(self._rows) else None

    def rows(self) -> tuple[Row, ...]:
        """As shown."""
        return self._rows

    def place_of(self, key: Key) -> int:
        """Where a row of that key stands or would be put in."""
        return sum(1 for row in self._rows if row.key < key)

    def refresh(self, layout: Layout) -> None:
        """Shows the cards of the desk. Rows that stay keep their place, their selection and the keyboard."""
        before = {row.key: row for row in self._rows}
        made = rows_of(self._desk.cards_of(self.device), layout)
        # A row that says what it said stays the same object: its picture is known by it.
        fresh = tuple(old if (old := before.get(row.key)) == row and old is not None else row for row in made)
        if fresh == self._rows:
            return
        self.about_to_change.emit()
        stay = {row.key for row in fresh} & {row.key for row in self._rows}
        for first, last in reversed([*_ranges(row.key not in stay for row in self._rows)]):
            self.beginRemoveRows(_NOWHERE, first, last)
            self._rows = self._rows[:first] + self._rows[last + 1 :]
            self.endRemoveRows()
        for first, last in _ranges(row.key not in stay for row in fresh):
            self.beginInsertRows(_NOWHERE, first, last)
            self._rows = self._rows[:first] + fresh[first : last + 1] + self._rows[first:]
            self.endInsertRows()
        self._rows = fresh
        for first, last in _ranges(before.get(row.key, row) is not row for row in fresh):
            self.dataChanged.emit(self.index(first), self.index(last))
        self.rows_changed.emit()


def _ranges(marks: Iterable[bool]) -> Iterator[tuple[int, int]]:
    """(first, last) of everything that is marked without a gap."""
    first: int | None = None
    i = -1
    for i, marked in enumerate(marks):
        if marked and first is None:
            first = i
        elif not marked and first is not None:
            yield first, i - 1
            first = None
    if first is not None:
        yield first, i


class PlacementColumns(QObject):
    """columns_changed(): other devices; layout_changed(): grouping, filter or open groups; refreshed(): rows may have changed."""

    columns_changed = Signal()
    layout_changed = Signal()
    refreshed = Signal()

    def __init__(self, desk: PlacementDesk, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._desk = desk
        self._columns: dict[Device, PlacementColumn] = {}
        self._layout = Layout()
        desk.outline_changed.connect(self._on_outline_changed)
        desk.changed.connect(self._on_changed)
        self._on_outline_changed()

    @property
    def layout(self) -> Layout:
        """How cards are shown."""
        return self._layout

    def columns(self) -> tuple[PlacementColumn, ...]:
        """In the order of the devices."""
        return tuple(self._columns.values())

    def column(self, device: Device) -> PlacementColumn | None:
        """Of one device."""
        return self._columns.get(device)

    def set_filter(self, which: CardFilter) -> None:
        """Shows only some cards."""
        self._set_layout(replace(self._layout, filter=which))

    def set_grouped(self, grouped: bool) -> None:
        """Ranges of layers together, or every card on its own."""
        self._set_layout(replace(self._layout, grouped=grouped))

    def set_expanded(self, cards: Iterable[CardId], expanded: bool) -> None:
        """Opens or closes the groups of these cards."""
        before = self._layout.expanded
        self._set_layout(replace(self._layout, expanded=before.union(cards) if expanded else before.difference(cards)))

    def _set_layout(self, layout: Layout) -> None:
        if layout != self._layout:
            self._layout = layout
            self._refresh(self._columns)
            self.layout_changed.emit()

    def _refresh(self, devices: Iterable[Device]) -> None:
        for device in devices:
            column = self._columns.get(device)
            if column is not None:
                column.refresh(self._layout)
        self.refreshed.emit()

    def _on_outline_changed(self) -> None:
        """Another model: experts are open, everything else is closed."""
        devices = [row.device for row in self._desk.devices()]
        outline = self._desk.outline
        experts = frozenset[CardId](fact.unit for fact in (outline.units if outline else ()) if fact.n_experts)
        self._layout = Layout(expanded=experts, n_ctx=self._desk.n_ctx)
        if devices != [*self._columns]:
            for column in self._columns.values():
                column.deleteLater()
            self._columns = {device: PlacementColumn(self._desk, device, self) for device in devices}
            self.columns_changed.emit()
        self._refresh(self._columns)
        self.layout_changed.emit()

    def _on_changed(self, devices: frozenset[Device]) -> None:
        self._refresh(devices)
