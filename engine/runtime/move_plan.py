"""What differs between two placements of a loaded model, whether one can follow the other, and in which parts it can be done
where there is no room for both at once. Values only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from engine.arch.spec import ModelSpec
from engine.arch.units import UnitId
from engine.errors import PlacementError
from engine.placement.placement import Device, Gpu, Numa, Placement, units_of
from engine.placement.pools import check_pools, with_sensible_pools


def check_move(spec: ModelSpec, now: Placement, then: Placement) -> None:
    """Raises PlacementError where `then` cannot be had without loading the model again, with the reason."""
    if {unit for unit, _ in then.units} != set(units_of(spec)):
        raise PlacementError("the placement was made for another model; make one for this model")
    if (now.k_type, now.v_type) != (then.k_type, then.v_type):
        was, wanted = f"{now.k_type}/{now.v_type}", f"{then.k_type}/{then.v_type}"
        raise PlacementError(
            f"the cache holds {was} values and the placement wants {wanted}; load the model again to change that"
        )
    for unit, device in then.units:
        if unit.kind in ("kv", "state") and device != then.device_of(UnitId("mixer", unit.layer)):
            raise PlacementError(f"{unit} is on {device} and the attention that reads it is not; move both")
    check_pools(then, spec, "the placement")


def moved_units(now: Placement, then: Placement) -> tuple[tuple[UnitId, Device, Device], ...]:
    """(unit, where it lies, where it goes)."""
    pairs = ((unit, now.device_of(unit), device) for unit, device in then.units)
    return tuple(one for one in pairs if one[1] != one[2])


def parts_of(now: Placement, then: Placement) -> tuple[Placement, ...]:
    """Placements on the way, the last of them `then`, each of which needs less room beside the one before; () : none does.

    What leaves a GPU goes first, to the machine's memory where its place on another GPU is still taken; then what comes. A way of
    one kind is cut in halves by layers.
    """
    moves = moved_units(now, then)
    home = next((device for device in (*now.devices, *then.devices) if isinstance(device, Numa)), Numa(0))
    leaving: dict[UnitId, Device] = {
        unit: (there if isinstance(there, Numa) else home) for unit, here, there in moves if isinstance(here, Gpu)
    }
    between = with_units(now, leaving)
    if leaving and moved_units(between, then):
        return between, then
    layers = sorted({unit.layer for unit, _, _ in moves})
    if len(layers) < 2:
        return ()
    first = set(layers[: len(layers) // 2])
    return with_units(now, {unit: there for unit, _, there in moves if unit.layer in first}), then


def with_units(placement: Placement, places: dict[UnitId, Device]) -> Placement:
    """The placement with some units elsewhere, and the pools that still have sense then."""
    moved = replace(placement, units=tuple((unit, places.get(unit, device)) for unit, device in placement.units))
    return with_sensible_pools(moved)


def gpus_of(placements: Iterable[Placement]) -> bool:
    """Whether any of them uses a GPU."""
    return any(isinstance(device, Gpu) for one in placements for device in one.devices)
