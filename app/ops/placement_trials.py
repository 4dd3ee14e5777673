"""PlacementTrials: what placements and moves that are tried would come to; asking the same again, as drags do, costs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.ops.placement_cards import CardId
from app.ops.placement_heat import PlacementHeat
from app.ops.placement_history import Draft
from app.ops.placement_moves import moved, refusal
from app.ops.placement_planning import Remembered
from app.ops.placement_worker import Opened
from engine.api.pure import Calibration, Device, Placement, Prediction


class PlacementTrials:
    """Of one model that is open."""

    def __init__(self, opened: Opened, heat: PlacementHeat) -> None:
        self._opened, self._heat = opened, heat
        self._refusals = Remembered[str]()
        self._forget()

    def _forget(self) -> None:
        self._previews, self._estimates = Remembered[Prediction | None](), Remembered[Prediction]()

    def estimate(self, placement: Placement) -> Prediction:
        """The estimate; what was previewed last is known when it is dropped."""
        return self._estimates.of(placement, lambda: self._opened.planner.estimate(placement))

    def preview(self, draft: Draft, cards: frozenset[CardId], device: Device) -> Prediction | None:
        """What moving cards to a device would cost; None: nothing would move."""

        def estimate() -> Prediction | None:
            placement = moved(self._opened.planner, draft, cards, device, self._heat)
            return None if placement is None else self.estimate(placement)

        return self._previews.of((draft, cards, device), estimate)

    def refusal(self, draft: Draft, cards: tuple[CardId, ...], device: Device) -> str:
        """Why cards cannot be moved to a device, a sentence with what to do; empty: they can, or lie there."""
        planner = self._opened.planner
        return self._refusals.of((draft, frozenset(cards), device), lambda: refusal(planner, draft, cards, device, self._heat))

    def set_counts(self, counts: Mapping[int, Sequence[int]]) -> None:
        """By which experts pools are worth something from now on."""
        self._opened.planner.set_counts(counts)
        self._forget()

    def set_rates(self, rates: Calibration) -> None:
        """What was measured of the machine meanwhile."""
        for planner in (self._opened.planner, self._opened.solver):
            planner.set_rates(rates)
        self._forget()
