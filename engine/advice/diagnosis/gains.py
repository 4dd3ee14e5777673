"""What moving work off a device would bring: found by trying placements with the planner, never by a template.

The planner knows bytes, rates and overlap; the window knows how the steps of now really are. A gain is the planner's ratio of two
predictions, and never more than Amdahl's law leaves of the measured step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.advice.diagnosis.finding import Gain
from engine.advice.diagnosis.measured import Measured
from engine.arch.units import UnitId
from engine.estimate.prediction import Prediction
from engine.placement.placement import Device, Gpu, Numa, Placement

LEAST_PERCENT = 3.0
"""Less is within what any prediction is off by."""
RESERVE_BYTES = 700_000_000
"""Of a card: its driver, a display, and one more buffer. Caches up to the whole context are in the prediction already."""
ENOUGH = 0.98
"""Of the best gain: fewer layers that bring as much are better."""


class Predicts(Protocol):
    """`engine.estimate.planner.Planner`, or a scripted one in tests."""

    def estimate(self, placement: Placement, *, depth: int = 0) -> Prediction:
        """What a placement takes and how fast it is, with so many tokens in the cache."""

    def move(self, placement: Placement, units: tuple[UnitId, ...], device: Device) -> Placement:
        """The placement with some units elsewhere, and what follows them."""

    def into_memory(self, placement: Placement, units: tuple[UnitId, ...]) -> Placement:
        """The placement with some units in memory, over its nodes, and what follows them."""

    def refusal(self, placement: Placement, units: tuple[UnitId, ...], device: Device) -> str:
        """Why units cannot lie on a device; empty: they can."""

    def unit_bytes(self, placement: Placement) -> dict[UnitId, int]:
        """Bytes of every unit."""

    def unit_ms(self, unit: UnitId, device: Device) -> float:
        """Milliseconds of a token that a unit takes there."""

    def fit(self) -> Placement:
        """The best placement found. Raises: PlacementError."""


@dataclass(frozen=True, slots=True)
class Point:
    """k units moved: the placement, and the gain in parts of 1."""

    k: int
    placement: Placement
    gain: float
    fits: bool


def relief(planner: Predicts, placement: Placement, device: str, measured: Measured) -> Gain | None:
    """Layers of a node of memory moved to the card where they bring most; None where less than LEAST_PERCENT is to be had."""
    source = next((one for one in placement.devices if str(one) == device), None)
    if not isinstance(source, Numa):
        return None
    found = [
        _best(planner, placement, source, one.device, measured)
        for one in planner.estimate(placement).devices
        if isinstance(one.device, Gpu)
    ]
    gains = [one for one in found if one is not None]
    return max(gains, key=lambda one: one.percent, default=None)


def _best(planner: Predicts, placement: Placement, source: Numa, card: Gpu, measured: Measured) -> Gain | None:
    units = movable(planner, placement, source, card)
    points = curve(planner, placement, units, card, measured)
    fitting = [one for one in points if one.fits and one.k]
    best = max((one.gain for one in fitting), default=0.0)
    if round(100 * best) < LEAST_PERCENT:
        return None
    chosen = next(one for one in fitting if one.gain >= ENOUGH * best)
    sizes, before = planner.unit_bytes(placement), planner.estimate(placement)
    moved = sum(sizes.get(unit, 0) for unit in units[: chosen.k])
    free = before.of(card).capacity - before.of(card).used
    experts = all(unit.kind == "experts" for unit in units[: chosen.k])
    what = f"{chosen.k} more layer{'s' if chosen.k > 1 else ''}{_possessive(chosen.k) if experts else ''}"
    text = f"Move {what} to GPU {card.index} ({free / 1e9:.1f} GB free)"
    percent = float(round(100 * chosen.gain))
    return Gain(percent, float(round(percent * measured.spread)), chosen.placement, text, chosen.k, card, moved)


def _possessive(k: int) -> str:
    return "' experts" if k > 1 else "'s experts"


def movable(planner: Predicts, placement: Placement, source: Numa, card: Gpu) -> tuple[UnitId, ...]:
    """Units that are worth moving: experts on the node, those first whose router lies on the card already; of a model without
    experts the feed-forward parts. The last layers first, which keeps those that stay together."""
    places = placement.places
    kinds = ("experts",) if any(unit.kind == "experts" for unit in places) else ("ffn",)
    there = [unit for unit, where in placement.units if where == source and unit.kind in kinds]

    def rank(unit: UnitId) -> tuple[bool, int]:
        return places.get(UnitId("ffn", unit.layer)) != card and places.get(UnitId("mixer", unit.layer)) != card, -unit.layer

    return tuple(unit for unit in sorted(there, key=rank) if not planner.refusal(placement, (unit,), card))


def curve(planner: Predicts, placement: Placement, units: Sequence[UnitId], card: Gpu, measured: Measured) -> tuple[Point, ...]:
    """The gain of moving the first k units, for k from 0 up to the first that does not fit."""
    before = planner.estimate(placement, depth=measured.depth)
    points = [Point(0, placement, 0.0, before.fits)]
    for k in range(1, len(units) + 1):
        there = planner.move(placement, tuple(units[:k]), card)
        after = planner.estimate(there, depth=measured.depth)
        room = after.of(card).capacity - after.of(card).used >= RESERVE_BYTES
        if not after.fits or not room:
            break
        gain = after.decode_tok_s / before.decode_tok_s - 1
        points.append(Point(k, there, min(gain, amdahl(planner, placement, units[:k], measured)), fits=True))
    return tuple(points)


def amdahl(planner: Predicts, placement: Placement, moved: Sequence[UnitId], measured: Measured) -> float:
    """The most that can be gained if what moves took no time at all any more, in parts of 1."""
    removed = 0.0
    places = placement.places
    for device, share in measured.shares.items():
        mine = [unit for unit, where in placement.units if str(where) == device]
        whole = sum(planner.unit_ms(unit, places[unit]) for unit in mine)
        part = sum(planner.unit_ms(unit, places[unit]) for unit in moved if str(places[unit]) == device)
        removed += share * (part / whole if whole > 0 else 0.0)
    return 1 / (1 - min(removed, 0.99)) - 1


def rebalanced(
    planner: Predicts,
    placement: Placement,
    measured: Measured,
    keep: Callable[[Placement], Placement],
    *,
    prompts: bool = False,
) -> Gain | None:
    """The best placement that the solver finds; None where less than LEAST_PERCENT is to be had. keep: puts workers and cache
    types of the loaded model into a placement. prompts: what counts is how fast prompts are read; decoding may not suffer more
    than LEAST_PERCENT for it.

    Raises:
        PlacementError: nothing fits.
    """
    there = keep(planner.fit())
    before, after = planner.estimate(placement, depth=measured.depth), planner.estimate(there, depth=measured.depth)
    places = placement.places
    moved = tuple(unit for unit, where in there.units if places.get(unit) != where)
    decoding = after.decode_tok_s / before.decode_tok_s - 1
    if prompts:
        gain = after.prefill_tok_s / before.prefill_tok_s - 1 if 100 * decoding > -LEAST_PERCENT else 0.0
    else:
        gain = min(decoding, amdahl(planner, placement, moved, measured))
    if not moved or not after.fits or round(100 * gain) < LEAST_PERCENT:
        return None
    sizes = planner.unit_bytes(placement)
    percent = float(round(100 * gain))
    n_layers = len({unit.layer for unit in moved if unit.layer >= 0})
    text = f"Move parts of {n_layers} layer{'s' if n_layers != 1 else ''}"
    nbytes = sum(sizes.get(one, 0) for one in moved)
    return Gain(percent, float(round(percent * measured.spread)), there, text, len(moved), None, nbytes, prompts)
