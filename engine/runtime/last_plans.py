"""The plans of the placements that a model had last: who compares two goes back and forth."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar, cast

from engine.arch.units import UnitId
from engine.placement.placement import Device, Placement, Pool
from engine.placement.spread import Spread

KEPT = 6
"""Ten megabytes each for a hundred layers."""

T = TypeVar("T")
Key = tuple[tuple[tuple[UnitId, Device], ...], tuple[tuple[UnitId, Spread], ...], tuple[Pool, ...], str, str]


class LastPlans:
    """Used by one thread at a time."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, dict[str, object]] = OrderedDict()

    def of(self, placement: Placement, lower: Callable[[], T], kind: str = "own") -> T:
        """The plans of a placement, lowered unless they are known. kind: which of its plans. Raises: what `lower` raises."""
        key = placement.units, placement.spreads, placement.pools, placement.k_type, placement.v_type
        known = self._known.get(key, {})
        if kind not in known:
            known[kind] = lower()
            self._known[key] = known
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return cast(T, known[kind])
