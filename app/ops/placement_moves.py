"""What moving cards means for a placement: which of them move, what goes with them, and why some may not."""

from __future__ import annotations

from collections.abc import Iterable

from app.i18n import tr
from app.ops.placement_cards import CardId, HotSet
from app.ops.placement_history import Draft
from app.ops.placement_planning import PlacementPlanner
from engine.api.pure import Device, Placement, UnitId


def owners(cards: Iterable[CardId]) -> tuple[CardId, ...]:
    """The cards with caches and states replaced by the attention that reads them: they go where it goes."""
    found = (UnitId("mixer", one.layer) if isinstance(one, UnitId) and one.kind in ("kv", "state") else one for one in cards)
    return tuple(dict.fromkeys(found))


def movable(draft: Draft, cards: Iterable[CardId], device: Device) -> tuple[CardId, ...]:
    """Those that can move to a device: neither held fast nor there already."""
    return tuple(
        one
        for one in owners(cards)
        if one not in draft.pins and (one.gpu if isinstance(one, HotSet) else draft.placement.device_of(one)) != device
    )


def moved(planner: PlacementPlanner, draft: Draft, cards: Iterable[CardId], device: Device) -> Placement | None:
    """The placement with the cards that can move on the device; None: there are none."""
    ids = movable(draft, cards, device)
    if not ids:
        return None
    return planner.move(draft.placement, tuple(one for one in ids if isinstance(one, UnitId)), device)


def refusal(planner: PlacementPlanner, draft: Draft, cards: Iterable[CardId], device: Device) -> str:
    """Why cards cannot be moved to a device, a sentence with what to do; empty: they can, or lie there."""
    asked = tuple(cards)
    ids = movable(draft, asked, device)
    if not ids and draft.pins.intersection(owners(asked)):
        return tr("Placement", "What is pinned does not move; press P to unpin it.")
    units = tuple(one for one in ids if isinstance(one, UnitId))
    return planner.refusal(draft.placement, units, device) if units else ""


def keep(planner: PlacementPlanner, draft: Draft, found: Placement) -> Placement:
    """A placement that was found, with what is held fast left where it lies."""
    for device in draft.placement.devices:
        held = tuple(
            one
            for one in draft.pins
            if isinstance(one, UnitId) and draft.placement.device_of(one) == device and found.device_of(one) != device
        )
        if held:
            found = planner.move(found, held, device)
    return found


def differing(before: Placement, after: Placement) -> frozenset[UnitId]:
    """What lies elsewhere; caches and states go with their attention and are not counted."""
    places = before.places
    return frozenset(unit for unit, device in after.units if unit.kind not in ("kv", "state") and places.get(unit) != device)
