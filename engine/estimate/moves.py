"""A move that would make room on a device: what `OutOfDeviceMemory` proposes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from engine.arch.units import UnitId, UnitKind
from engine.errors import OutOfDeviceMemory
from engine.estimate.automatic import Judge, moved, spare
from engine.estimate.memory import Estimator
from engine.placement.differences import layer_list
from engine.placement.placement import Device, Gpu, Numa, Placement

_LAYER: tuple[UnitKind, ...] = ("mixer", "kv", "state", "ffn", "shared", "experts")
_WHOLE: tuple[tuple[UnitKind, str], ...] = (("embed", "the embedding"), ("head", "the output"))
_WITH_MIXER: tuple[UnitKind, ...] = ("kv", "state")


@dataclass(frozen=True, slots=True)
class Move:
    """placement: how everything lies afterwards; sentence: what to do, an imperative without a full stop."""

    placement: Placement
    sentence: str


def find_move(
    estimator: Estimator,
    placement: Placement,
    device: Device,
    missing: int,
    judge: Judge | None = None,
    held: Collection[UnitId] = (),
) -> Move | None:
    """The smallest move that frees `missing` bytes on the device and fills no other beyond its capacity; None: there is none.

    Experts go first, of as few layers as will do, the last of the device; then whole layers, the first; then all there is. They
    go to the CPU, or to a GPU that has room. judge: what estimates, in place of the estimator itself. held: units that stay
    where they are.
    """
    judge = judge or estimator.estimate
    before = judge(placement).of(device).used
    sizes, n_here = estimator.unit_bytes(placement), sum(where == device for _, where in placement.units)
    machine = estimator.machine
    others: list[Device] = [*(Numa(one.node) for one in machine.nodes), *(Gpu(one.index) for one in machine.gpus)]
    for target in others:
        if target == device:
            continue
        for units in _choices(placement, device, held):
            if len(units) < n_here and sum(sizes[unit] for unit in units) < missing:
                continue  # too little to be worth an estimate; where nothing stays, what a device needs for itself is free too
            there = moved(placement, dict.fromkeys(units, target))
            after = judge(there)
            if after.of(target).over:
                break
            left = next((one.used for one in after.devices if one.device == device), 0)  # not listed: neither used nor there
            if before - left >= missing:
                return Move(there, f"move {_named(units)} to {_called(target, estimator)}")
    return None


def with_move(error: OutOfDeviceMemory, estimator: Estimator, placement: Placement) -> OutOfDeviceMemory:
    """The error with a move in its sentence after which the whole placement fits, or as it is where there is none.

    What failed is the first that found no room; the estimate knows what would have come behind it.
    """
    device = next((one for one in placement.devices if str(one) == error.device), None)
    if device is None:
        return error
    missing = max(error.missing, -spare(estimator.estimate(placement).of(device)))
    move = find_move(estimator, placement, device, missing)
    if move is None:
        return error
    return OutOfDeviceMemory(error.what, error.device, error.asked, error.free, move.sentence)


def _called(device: Device, estimator: Estimator) -> str:
    return "the CPU" if isinstance(device, Numa) and len(estimator.machine.nodes) == 1 else str(device)


def _choices(placement: Placement, device: Device, held: Collection[UnitId]) -> Iterator[tuple[UnitId, ...]]:
    """Sets of units of the device that could go, each larger than the one before. A cache is held with its attention."""
    fast = {*held, *(UnitId(kind, unit.layer) for unit in held if unit.kind == "mixer" for kind in _WITH_MIXER)}
    here = [unit for unit, where in placement.units if where == device and unit not in fast]
    experts = sorted((unit for unit in here if unit.kind == "experts"), key=lambda unit: -unit.layer)
    for n in range(1, len(experts) + 1):
        yield tuple(experts[:n])
    layers = sorted({unit.layer for unit in here if unit.kind == "mixer"})
    for n in range(1, len(layers) + 1):
        gone = set(layers[:n])
        yield (
            *(unit for unit in here if unit.layer in gone and unit.kind in _LAYER),
            *(one for one in experts if one.layer not in gone),
        )
    yield tuple(here)


def _named(units: tuple[UnitId, ...]) -> str:
    layers = {unit.layer for unit in units if unit.kind == "mixer"}
    experts = {unit.layer for unit in units if unit.kind == "experts"} - layers
    parts = [f"the experts of {layer_list(experts)}"] if experts else []
    if layers:
        parts.append(layer_list(layers))
    parts += [name for kind, name in _WHOLE if any(unit.kind == kind for unit in units)]
    return " and ".join(parts)
