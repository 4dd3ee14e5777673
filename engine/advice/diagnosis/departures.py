"""What should leave a device, and where to: of a card that is full, hot or gone, and of memory that is too small. Found by trying
placements with the planner; what it costs, or brings, is the planner's ratio of two predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from engine.advice.diagnosis.finding import Gain
from engine.advice.diagnosis.gains import RESERVE_BYTES, Predicts, amdahl, movable
from engine.advice.diagnosis.measured import Measured
from engine.advice.diagnosis.window import bytes_text, spoken
from engine.arch.units import UnitId
from engine.errors import EngineError
from engine.estimate.prediction import Prediction
from engine.placement.options import KvType
from engine.placement.placement import Device, Gpu, Numa, Placement

EASED = 0.8
"""Of its work in a token: so much is left to a card that is to cool down. Its heat follows its work at once."""
DEAR = 0.7
"""Of the speed: what leaves less costs more than the heat or the room that it is meant to help with."""
CACHE_PERCENT = -3.0
"""A move that costs more than this is worse than a smaller cache, which reads less too."""
SMALL_CACHE: KvType = "q8_0"


@dataclass(frozen=True, slots=True)
class _Way:
    """One way out: the first k of `units` to `to`, None: to the machine's memory."""

    units: tuple[UnitId, ...]
    k: int
    to: Gpu | None
    placement: Placement
    after: Prediction


Enough = Callable[[Prediction], bool]


def vacated(planner: Predicts, placement: Placement, device: str, measured: Measured | None) -> Gain | None:
    """The placement without a card that is gone: what lay there goes to cards that have room, what speeds a token up most for its
    bytes first, and the rest into memory; None where all of it does not fit."""
    card = _card(placement, device)
    if card is None:
        return None
    sizes = planner.unit_bytes(placement)
    left = [unit for unit, where in placement.units if where == card and unit.kind not in ("kv", "state")]
    there, n_units = placement, len(left)
    to: list[Device] = []
    for other in (one.device for one in planner.estimate(placement).devices):
        if not isinstance(other, Gpu) or other == card:
            continue
        fast = sorted(left, key=lambda unit: -_saved_ms(planner, placement, unit, other) / max(1, sizes.get(unit, 0)))
        fast = [unit for unit in fast if not planner.refusal(placement, (unit,), other)]
        k = _most(planner, there, fast, other)
        if k:
            there = planner.move(there, tuple(fast[:k]), other)
            left = [unit for unit in left if unit not in set(fast[:k])]
            to.append(other)
    if left:
        there = planner.into_memory(there, tuple(left))
        to += sorted({where for unit, where in there.units if unit in set(left)}, key=str)
    after = planner.estimate(there, depth=0 if measured is None else measured.depth)
    if not n_units or not after.fits or any(where == card for _, where in there.units):
        return None
    moved = sum(n for unit, n in sizes.items() if placement.places.get(unit) == card)
    where = " and ".join(spoken(str(one)) for one in to)
    text = f"Move what lay on {spoken(device)} to {where}"
    return _gain(planner, placement, there, after, measured, text, n_units, to[0], moved)


def _saved_ms(planner: Predicts, placement: Placement, unit: UnitId, card: Gpu) -> float:
    """What a unit takes less on a card than in memory, in milliseconds of a token."""
    node = next((where for where in placement.devices if isinstance(where, Numa)), Numa(0))
    return planner.unit_ms(unit, node) - planner.unit_ms(unit, card)


def _most(planner: Predicts, placement: Placement, units: Sequence[UnitId], card: Gpu) -> int:
    """How many of the first units have room on a card."""

    def has_room(k: int) -> bool:
        found = planner.estimate(planner.move(placement, tuple(units[:k]), card)).of(card)
        return found.capacity - found.used >= RESERVE_BYTES

    low, high = 0, len(units)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if has_room(middle) else (low, middle - 1)
    return low


def lightened(planner: Predicts, placement: Placement, device: str, nbytes: int, measured: Measured | None) -> Gain | None:
    """The fewest layers whose going frees nbytes of a card, on the way that costs least, or a smaller cache if that costs less;
    of a memory node: what frees most of it, up to nbytes, on the card where it brings most. None where nothing helps."""
    source = next((one for one in placement.devices if str(one) == device), None)
    if source is None or nbytes <= 0:
        return None
    before = planner.estimate(placement, depth=0 if measured is None else measured.depth)

    def freed(after: Prediction) -> int:
        return before.of(source).used - after.of(source).used

    best = _best_way(planner, placement, source, lambda after: freed(after) >= nbytes, measured)
    if best is None and isinstance(source, Numa):
        best = _fullest_way(planner, placement, source, measured)
        if best is not None and freed(best.after) < nbytes / 4:
            return None  # of what is missing, too little to be felt
    found = None if best is None else _leaving(planner, placement, best, device, freed(best.after), measured)
    if isinstance(source, Numa) or (found is not None and found.percent >= CACHE_PERCENT):
        return found
    smaller = _smaller_cache(planner, placement, source, nbytes, measured)
    return smaller if found is None or (smaller is not None and smaller.percent > found.percent) else found


def eased(planner: Predicts, placement: Placement, device: str, measured: Measured | None) -> Gain | None:
    """The fewest layers without which a card has EASED of its work left; None where that costs more than it is worth."""
    card = _card(placement, device)
    if card is None:
        return None
    depth = 0 if measured is None else measured.depth
    before = planner.estimate(placement, depth=depth)
    limit = EASED * before.of(card).decode_ms
    best = _best_way(planner, placement, card, lambda after: after.of(card).decode_ms <= limit, measured)
    if best is None or best.after.decode_tok_s < DEAR * before.decode_tok_s:
        return None
    return _leaving(planner, placement, best, device, 0, measured)


def _card(placement: Placement, device: str) -> Gpu | None:
    return next((one for one in placement.devices if isinstance(one, Gpu) and str(one) == device), None)


def _best_way(planner: Predicts, placement: Placement, source: Device, enough: Enough, measured: Measured | None) -> _Way | None:
    """Of the ways out that are enough, the one after which a token is fastest."""
    found = []
    for to in _targets(planner, placement, source):
        units = _leaving_units(planner, placement, source, to)
        k = _fewest(planner, placement, units, to, enough)
        way = None if k is None else _way(planner, placement, units, k, to, measured)
        if way is not None and way.after.fits and _has_room(way):
            found.append(way)
    return max(found, key=lambda one: one.after.decode_tok_s, default=None)


def _fullest_way(planner: Predicts, placement: Placement, source: Numa, measured: Measured | None) -> _Way | None:
    """As many units of a memory node as any card has room for, the card that takes most bytes."""
    found = []
    for to in _targets(planner, placement, source):
        units = _leaving_units(planner, placement, source, to)
        low, high = 0, len(units)
        while low < high:
            middle = (low + high + 1) // 2
            fits = _has_room(_way(planner, placement, units, middle, to, measured))
            low, high = (middle, high) if fits else (low, middle - 1)
        if low:
            found.append(_way(planner, placement, units, low, to, measured))
    return min(found, key=lambda one: one.after.of(source).used, default=None)


def _targets(planner: Predicts, placement: Placement, source: Device) -> tuple[Gpu | None, ...]:
    """Where what leaves may go: other cards; from a card also memory."""
    devices = (one.device for one in planner.estimate(placement).devices)
    cards: tuple[Gpu | None, ...] = tuple(one for one in devices if isinstance(one, Gpu) and one != source)
    return cards if isinstance(source, Numa) else (*cards, None)


def _leaving_units(planner: Predicts, placement: Placement, source: Device, to: Gpu | None) -> tuple[UnitId, ...]:
    """In which order units leave: from memory what is worth moving; to another card whole layers, those with experts first, of
    these the last, so that the rest stays together; into memory experts first, then other products, attention and caches last."""
    if isinstance(source, Numa):
        assert to is not None
        return movable(planner, placement, source, to)
    kinds = ("experts", "shared", "ffn", "mixer")
    mine = [unit for unit, where in placement.units if where == source and unit.kind in kinds]
    if to is not None:
        mine = [unit for unit in mine if not planner.refusal(placement, (unit,), to)]
        rich = {unit.layer for unit in mine if unit.kind == "experts"}
        return tuple(sorted(mine, key=lambda unit: (unit.layer not in rich, -unit.layer, kinds.index(unit.kind))))
    return tuple(sorted(mine, key=lambda unit: (kinds.index(unit.kind), -unit.layer)))


def _there(planner: Predicts, placement: Placement, units: tuple[UnitId, ...], to: Gpu | None) -> Placement:
    return planner.into_memory(placement, units) if to is None else planner.move(placement, units, to)


def _way(
    planner: Predicts, placement: Placement, units: tuple[UnitId, ...], k: int, to: Gpu | None, measured: Measured | None
) -> _Way:
    there = _there(planner, placement, units[:k], to)
    return _Way(units, k, to, there, planner.estimate(there, depth=0 if measured is None else measured.depth))


def _has_room(way: _Way) -> bool:
    if way.to is None:
        return True
    found = way.after.of(way.to)
    return found.capacity - found.used >= RESERVE_BYTES


def _fewest(planner: Predicts, placement: Placement, units: tuple[UnitId, ...], to: Gpu | None, enough: Enough) -> int | None:
    """The fewest of the first units whose going is enough; None: not even that of all."""

    def is_enough(k: int) -> bool:
        return enough(planner.estimate(_there(planner, placement, units[:k], to)))

    if not units or not is_enough(len(units)):
        return None
    low, high = 1, len(units)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return low


def _leaving(planner: Predicts, placement: Placement, way: _Way, device: str, freed: int, measured: Measured | None) -> Gain:
    """The proposal that a way is, in words."""
    went = way.units[: way.k]
    sizes = planner.unit_bytes(placement)
    n_layers = len({unit.layer for unit in went})
    layers = f"{n_layers} layer{'s' if n_layers > 1 else ''}"
    experts = all(unit.kind == "experts" for unit in went)
    whole = {unit.layer for unit in went if unit.kind == "mixer"} == {unit.layer for unit in went}
    what = f"the experts of {layers}" if experts else layers if whole else f"parts of {layers}"
    nodes = sorted({str(where) for unit, where in way.placement.units if unit in set(went)})
    to = spoken(str(way.to)) if way.to is not None else spoken(nodes[0]) if len(nodes) == 1 else "memory"
    text = f"Move {what} from {spoken(device)} to {to}"
    text += f", which frees {bytes_text(freed)}" if freed else ""
    moved = sum(sizes.get(unit, 0) for unit in went)
    return _gain(planner, placement, way.placement, way.after, measured, text, way.k, way.to, moved)


def _gain(
    planner: Predicts,
    placement: Placement,
    there: Placement,
    after: Prediction,
    measured: Measured | None,
    text: str,
    n_units: int,
    to: Device | None,
    moved: int,
) -> Gain:
    depth = 0 if measured is None else measured.depth
    gain = after.decode_tok_s / planner.estimate(placement, depth=depth).decode_tok_s - 1
    spread = 0.0
    if measured is not None:
        went = tuple(unit for unit, where in there.units if placement.places.get(unit) != where)
        gain = min(gain, amdahl(planner, placement, went, measured))
        spread = measured.spread
    percent = float(round(100 * gain))
    return Gain(percent, float(round(abs(percent) * spread)), there, text, n_units, to, moved)


def _smaller_cache(planner: Predicts, placement: Placement, card: Device, nbytes: int, measured: Measured | None) -> Gain | None:
    """The same with the cache in fewer bits; None where it is that small already, or it frees too little."""
    if "f16" not in (placement.k_type, placement.v_type) and "f32" not in (placement.k_type, placement.v_type):
        return None
    there = replace(placement, k_type=SMALL_CACHE, v_type=SMALL_CACHE)
    with suppress(EngineError):
        after = planner.estimate(there, depth=0 if measured is None else measured.depth)
        freed = planner.estimate(placement).of(card).used - after.of(card).used
        if freed >= nbytes and after.fits:
            text = f"Keep the cache as {SMALL_CACHE}, which frees {bytes_text(freed)} of {spoken(str(card))} once loaded again"
            return Gain(0.0, 0.0, there, text, 0, card, 0)
    return None
