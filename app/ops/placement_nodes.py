"""NodeSplitter: cards split over all memory nodes, so that the cores of each read a part at once, and brought together again."""

from __future__ import annotations

from collections.abc import Iterable

from app.i18n import filled, tr
from app.ops.placement_cards import CardId, HotSet
from app.ops.placement_desk import PlacementDesk
from app.ops.placement_moves import owners
from app.ops.placement_planning import Remembered, cards_text, nodes_text
from engine.api.pure import Placement, Prediction, UnitId


class NodeSplitter:
    """Edits through the desk: a split is a step like a move, and is undone like one."""

    def __init__(self, desk: PlacementDesk) -> None:
        self._desk = desk
        self._previews = Remembered[Prediction | None]()

    def toggle(self, cards: Iterable[CardId]) -> bool:
        """Splits cards over all nodes; those that all are already, back to the first of their nodes. False: nothing changed, a
        notice says why."""
        asked = tuple(cards)
        placement, units = self._desk.placement, self._units(asked)
        together = placement is not None and bool(units) and all(placement.spread_of(unit) is not None for unit in units)
        return self._join(units) if together else self.split(asked)

    def split(self, cards: Iterable[CardId]) -> bool:
        """Splits cards over all nodes. False: nothing changed; a notice says why not."""
        asked = tuple(cards)
        reason, placement = self.refusal(asked), self._split(asked)
        if reason:
            self._desk.notice.emit(reason)
        if reason or placement is None:
            return False
        text = filled(
            tr("Placement", "Split %1 over %2"),
            cards_text(len(self._units(asked))),
            nodes_text(placement.nodes_of(self._units(asked)[0])),
        )
        self._desk.set_placement(placement, text)
        return True

    def preview(self, cards: Iterable[CardId]) -> Prediction | None:
        """What splitting them would give; None: nothing would change."""
        asked, planner = frozenset(cards), self._desk.planner

        def estimate() -> Prediction | None:
            placement = self._split(asked)
            return None if placement is None or planner is None else planner.estimate(placement)

        return self._previews.of((self._desk.placement, self._desk.pins, asked), estimate)

    def refusal(self, cards: Iterable[CardId]) -> str:
        """Why cards cannot be split over nodes, a sentence with what to do; empty: they can."""
        asked, planner, placement = tuple(cards), self._desk.planner, self._desk.placement
        if planner is None or placement is None:
            return tr("Placement", "No model is open; choose one first.")
        if self._desk.state == "applying":
            return tr("Placement", "The placement is being applied; wait for it to finish.")
        if any(isinstance(one, HotSet) for one in asked):
            return tr("Placement", "Hot experts are copies beside their router; split the experts of their layer instead.")
        units = self._units(asked)
        if not units and asked:
            return tr("Placement", "What is pinned does not move; press P to unpin it.")
        return planner.nodes_refusal(placement, units) if units else ""

    def _join(self, units: tuple[UnitId, ...]) -> bool:
        planner, placement = self._desk.planner, self._desk.placement
        if planner is None or placement is None or self._desk.state == "applying":
            return False
        text = filled(tr("Placement", "Bring %1 to one node"), cards_text(len(units)))
        self._desk.set_placement(planner.off_nodes(placement, units), text)
        return True

    def _split(self, cards: Iterable[CardId]) -> Placement | None:
        planner, placement, units = self._desk.planner, self._desk.placement, self._units(cards)
        if planner is None or placement is None or not units:
            return None
        found = planner.into_memory(placement, units)
        return None if found == placement else found

    def _units(self, cards: Iterable[CardId]) -> tuple[UnitId, ...]:
        """Those that are not pinned; caches and states are split with the attention that reads them."""
        pins = self._desk.pins
        return tuple(one for one in owners(cards) if isinstance(one, UnitId) and one not in pins)
