"""What moving cards means for a placement: which of them move, what goes with them, and why some may not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from app.i18n import filled, tr
from app.ops.placement_cards import CardId, HotSet
from app.ops.placement_heat import PlacementHeat
from app.ops.placement_history import Draft
from app.ops.placement_planning import PlacementPlanner, device_name
from engine.api.pure import Device, Gpu, Numa, Placement, Pool, UnitId


def owners(cards: Iterable[CardId]) -> tuple[CardId, ...]:
    """The cards with caches and states replaced by the attention that reads them: they go where it goes."""
    found = (UnitId("mixer", one.layer) if isinstance(one, UnitId) and one.kind in ("kv", "state") else one for one in cards)
    return tuple(dict.fromkeys(found))


def movable(draft: Draft, cards: Iterable[CardId], device: Device) -> tuple[CardId, ...]:
    """Those that can move to a device: neither pinned nor there already."""
    return tuple(
        one
        for one in owners(cards)
        if one not in draft.pins and (one.gpu if isinstance(one, HotSet) else draft.placement.device_of(one)) != device
    )


def moved(
    planner: PlacementPlanner, draft: Draft, cards: Iterable[CardId], device: Device, heat: PlacementHeat
) -> Placement | None:
    """The placement with the cards that can move on the device; None: there are none.

    Of experts of which the hottest are chosen, copies of these go to a GPU while all of them stay where they are. Copies that are
    moved away are given up.
    """
    ids = movable(draft, cards, device)
    if not ids:
        return None
    whole, parts = _parted(draft, ids, device, heat)
    pools = [Pool(unit.layer, gpu, heat.hottest(unit.layer, heat.splits[unit.layer])) for unit, gpu in parts]
    replaced = {pool.layer for pool in pools} | {one.layer for one in ids if isinstance(one, HotSet)}
    pools += [pool for pool in draft.placement.pools if pool.layer not in replaced]
    placement = replace(draft.placement, pools=tuple(sorted(pools, key=lambda pool: pool.layer)))
    placement = planner.move(placement, whole, device) if whole else placement
    return replace(placement, pools=tuple(pool for pool in placement.pools if _has_sense(placement, pool)))


def refusal(planner: PlacementPlanner, draft: Draft, cards: Iterable[CardId], device: Device, heat: PlacementHeat) -> str:
    """Why cards cannot be moved to a device, a sentence with what to do; empty: they can, or lie there."""
    asked = tuple(cards)
    ids = movable(draft, asked, device)
    if not ids and draft.pins.intersection(owners(asked)):
        return tr("Placement", "What is pinned does not move; press P to unpin it.")
    whole, parts = _parted(draft, ids, device, heat)
    if isinstance(device, Gpu) and any(isinstance(one, HotSet) for one in ids):
        return tr("Placement", "Hot experts lie beside the router of their layer; move the router, or choose them there anew.")
    for unit, gpu in parts:
        home = draft.placement.device_of(UnitId("ffn", unit.layer))
        if home != gpu:
            words = tr("Placement", "Hot experts lie beside their router: that of layer %1 is on %2; drop them there.")
            return filled(words, unit.layer, device_name(home))
    return planner.refusal(draft.placement, whole, device) if whole else ""


def _parted(
    draft: Draft, ids: Iterable[CardId], device: Device, heat: PlacementHeat
) -> tuple[tuple[UnitId, ...], tuple[tuple[UnitId, Gpu], ...]]:
    """(units that move as a whole, experts of which copies go to which GPU)."""
    units = sorted(one for one in ids if isinstance(one, UnitId))
    if not isinstance(device, Gpu):
        return tuple(units), ()
    parts = [
        one
        for one in units
        if one.kind == "experts" and heat.splits.get(one.layer) and isinstance(draft.placement.device_of(one), Numa)
    ]
    return tuple(one for one in units if one not in parts), tuple((one, device) for one in parts)


def _has_sense(placement: Placement, pool: Pool) -> bool:
    """Whether copies are of experts in the machine's memory, and lie beside their router."""
    return placement.pool_of(pool.layer) is not None and placement.device_of(UnitId("ffn", pool.layer)) == pool.gpu


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


def fitted(planner: PlacementPlanner, draft: Draft, counts: Mapping[int, Sequence[int]]) -> Placement:
    """The best placement by these counts of experts, with what is held fast left where it lies.

    Raises:
        PlacementError: nothing fits.
    """
    planner.set_counts(counts)
    return keep(planner, draft, planner.fit())


def differing(before: Placement, after: Placement) -> frozenset[CardId]:
    """What lies elsewhere, or otherwise over the nodes of memory; caches and states go with their attention and are not counted,
    sets of hot experts are."""
    places = before.places
    units = {unit for unit, device in after.units if places.get(unit) != device}
    units |= {unit for unit, _ in (*before.spreads, *after.spreads) if before.spread_of(unit) != after.spread_of(unit)}
    sets = {(pool.layer, pool.gpu, len(pool.experts)) for pool in before.pools}
    sets ^= {(pool.layer, pool.gpu, len(pool.experts)) for pool in after.pools}
    counted = (unit for unit in units if unit.kind not in ("kv", "state"))
    return frozenset[CardId](counted) | {HotSet(layer, gpu) for layer, gpu, _ in sets}
