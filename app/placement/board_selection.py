"""BoardSelection: what is selected on the whole board, over all its lists, and that it outlives cards that move."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from PySide6.QtCore import QItemSelection, QItemSelectionModel, QObject, Signal

from app.ops.placement_cards import CardId
from app.placement.card_list import CardList
from app.qtmodels.placement_columns import CardRole, PlacementColumns
from app.qtmodels.placement_rows import Row

_ADD = QItemSelectionModel.SelectionFlag.Select
_ONLY = QItemSelectionModel.SelectionFlag.ClearAndSelect


class BoardSelection(QObject):
    """changed() when other cards are selected. A click without Ctrl or Shift in one list clears the others."""

    changed = Signal()

    def __init__(self, columns: PlacementColumns, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lists: tuple[CardList, ...] = ()
        self._kept: frozenset[CardId] | None = None
        self._told: frozenset[CardId] = frozenset()
        columns.refreshed.connect(self._on_refreshed)

    def set_lists(self, lists: Sequence[CardList]) -> None:
        """The lists of the board, from the left."""
        self._lists = tuple(lists)
        for one in self._lists:
            one.selected.connect(self._on_selected)
            one.chosen_alone.connect(lambda alone=one: self.clear(but=alone))
            one.column.about_to_change.connect(self._keep)
        self._on_selected()

    def ids(self) -> frozenset[CardId]:
        """All of it, groups as their cards."""
        return frozenset(card for one in self._lists for card in one.selected_ids())

    def rows(self) -> tuple[Row, ...]:
        """The selected rows, from the left and from the top."""
        found = []
        for one in self._lists:
            numbers = sorted(index.row() for index in one.selectedIndexes())
            found += [one.column.rows()[number] for number in numbers]
        return tuple(found)

    def select(self, cards: Iterable[CardId]) -> None:
        """Selects the rows that hold nothing but these cards."""
        wanted = frozenset(cards)
        for one in self._lists:
            chosen = QItemSelection()
            for number, row in enumerate(one.column.rows()):
                if row.ids <= wanted:
                    index = one.column.index(number)
                    chosen.select(index, index)
            one.selectionModel().select(chosen, _ONLY)

    def clear(self, but: CardList | None = None) -> None:
        """Nothing is selected any more, in all lists but one."""
        for one in self._lists:
            if one is not but:
                one.clearSelection()

    def select_group(self, within: CardList) -> None:
        """The whole family of the current card with its head; all of the list where that is selected already."""
        rows, current = within.column.rows(), within.row_at(within.currentIndex())
        if not rows:
            return
        family = rows[0].family if current is None else current.family
        numbers = [i for i, row in enumerate(rows) if row.family == family]
        chosen = {index.row() for index in within.selectedIndexes()}
        if chosen.issuperset(numbers):
            numbers = [*range(len(rows))]
        selection = QItemSelection(within.column.index(numbers[0]), within.column.index(numbers[-1]))
        within.selectionModel().select(selection, _ADD)

    def acting_on(self, within: CardList | None) -> frozenset[CardId]:
        """What a key is about: the selection, else the card that has the keyboard."""
        chosen = self.ids()
        if chosen or within is None:
            return chosen
        return frozenset(within.currentIndex().data(CardRole.CARDS) or ())

    def _on_selected(self) -> None:
        if self._kept is None and (now := self.ids()) != self._told:
            self._told = now
            self.changed.emit()

    def _keep(self) -> None:
        """Rows are about to come and go: what is selected is remembered by name."""
        if self._kept is None:
            self._kept = self.ids()

    def _on_refreshed(self) -> None:
        if self._kept is not None:
            self.select(self._kept)
            self._kept = None
            self._on_selected()
