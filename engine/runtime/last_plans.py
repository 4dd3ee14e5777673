"""The plans of the placements that a model had last: who compares two goes back and forth."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from engine.arch.units import UnitId
from engine.placement.placement import Device, Placement, Pool
from engine.placement.spread import Spread
from engine.program.plan import Plan

KEPT = 3

Key = tuple[tuple[tuple[UnitId, Device], ...], tuple[tuple[UnitId, Spread], ...], tuple[Pool, ...], str, str]


class LastPlans:
    """Used by one thread at a time."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, tuple[Plan, ...]] = OrderedDict()

    def of(self, placement: Placement, lower: Callable[[], tuple[Plan, ...]]) -> tuple[Plan, ...]:
        """The plans of a placement, lowered unless they are known. Raises: what `lower` raises."""
        key = placement.units, placement.spreads, placement.pools, placement.k_type, placement.v_type
        if key not in self._known:
            self._known[key] = lower()
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]
