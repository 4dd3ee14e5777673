"""CardTable: the cards of the present draft by device and by name, made anew where something changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from app.ops.placement_cards import ORDER, Card, CardId, Family, HotSet
from app.ops.placement_heat import PlacementHeat
from app.ops.placement_history import Draft
from app.ops.placement_worker import Opened
from engine.api.pure import Device, Placement, Pool, UnitFacts, UnitId

_RANK = {family: rank for rank, family in enumerate(ORDER)}


@dataclass(frozen=True, slots=True)
class Marks:
    """What is known of cards beside their place. applied: how the model is loaded, None where it is not."""

    heat: PlacementHeat
    applied: Placement | None


class CardTable:
    """The cards of one model."""

    def __init__(self) -> None:
        self._by_device: dict[Device, tuple[Card, ...]] = {}
        self._by_id: dict[CardId, Card] = {}

    def of(self, device: Device) -> tuple[Card, ...]:
        """The cards on a device, by family and layer."""
        return self._by_device.get(device, ())

    def get(self, card: CardId) -> Card | None:
        """A card by its name; None: there is no such thing."""
        return self._by_id.get(card)

    def devices(self) -> frozenset[Device]:
        """Those that cards were made for."""
        return frozenset(self._by_device)

    def differing(self, draft: Draft) -> frozenset[Device]:
        """The devices on which a draft shows other cards."""
        touched: set[Device] = set()
        for unit, device in draft.placement.units:
            card = self._by_id[unit]
            if card.device != device or card.pinned != (unit in draft.pins) or card.nodes != _nodes(draft.placement, unit):
                touched |= {card.device, device}
        shown = {(one, card.n_hot, card.pinned) for one, card in self._by_id.items() if isinstance(one, HotSet)}
        wanted = {(one, len(pool.experts), one in draft.pins) for one, pool in _sets(draft.placement).items()}
        return frozenset(touched | {one.gpu for one, _, _ in shown ^ wanted})

    def make(self, opened: Opened, draft: Draft, marks: Marks, devices: Iterable[Device]) -> None:
        """Makes the cards of some devices anew."""
        found: dict[Device, list[Card]] = {device: [] for device in devices}
        sizes = opened.planner.unit_bytes(draft.placement)
        applied = marks.applied
        before: Mapping[UnitId, Device] = {} if applied is None else applied.places
        for unit, device in draft.placement.units:
            if device in found:
                moved = bool(before) and (before.get(unit) != device or _nodes(draft.placement, unit) != _nodes(applied, unit))
                family = opened.families[unit]
                found[device].append(_card(opened.facts[unit], sizes[unit], family, device, draft, marks, moved=moved))
        known = {} if marks.applied is None else _sets(marks.applied)
        for one, pool in _sets(draft.placement).items():
            if one.gpu in found:
                whole, same = UnitId("experts", one.layer), known.get(one)
                moved = bool(before) and (same is None or len(same.experts) != len(pool.experts))
                card = _hot(opened.facts[whole], sizes[whole], pool, marks.heat)
                found[one.gpu].append(replace(card, pinned=one in draft.pins, moved=moved))
        for device, cards in found.items():
            self._by_device[device] = tuple(sorted(cards, key=lambda one: (_RANK[one.family], one.layer)))
        self._by_id = {card.id: card for cards in self._by_device.values() for card in cards}


def _card(fact: UnitFacts, nbytes: int, family: Family, device: Device, draft: Draft, marks: Marks, *, moved: bool) -> Card:
    unit, heat = fact.unit, marks.heat
    n_hot = heat.splits.get(unit.layer, 0) if unit.kind == "experts" else 0
    return Card(
        unit,
        device,
        family,
        nbytes,
        fact.formats or (draft.placement.k_type if unit.kind == "kv" else ""),
        fact.n_experts,
        n_hot,
        nbytes * n_hot // max(1, fact.n_experts),
        heat.strips.get(unit.layer, b"") if unit.kind == "experts" else b"",
        unit in draft.pins,
        moved,
        _nodes(draft.placement, unit),
    )


def _nodes(placement: Placement | None, unit: UnitId) -> tuple[int, ...]:
    """Over which nodes a unit is split; empty: over none."""
    if placement is None or not placement.spreads:  # as most are; asked for each unit at each drop
        return ()
    spread = placement.spread_of(unit)
    return () if spread is None else spread.nodes


def _hot(fact: UnitFacts, nbytes: int, pool: Pool, heat: PlacementHeat) -> Card:
    """A set of copies. Its heat is that of the experts in it."""
    n_hot, strip = len(pool.experts), heat.strips.get(pool.layer, b"")
    held = nbytes * n_hot // max(1, fact.n_experts)
    own = bytes(strip[one] for one in pool.experts if one < len(strip))
    return Card(HotSet(pool.layer, pool.gpu), pool.gpu, "hot", held, fact.formats, fact.n_experts, n_hot, held, own)


def _sets(placement: Placement) -> dict[HotSet, Pool]:
    """The sets of hot experts that count."""
    counting = (pool for pool in placement.pools if placement.pool_of(pool.layer) is not None)
    return {HotSet(pool.layer, pool.gpu): pool for pool in counting}
