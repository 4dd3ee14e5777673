"""Spreads of a placement over nodes of memory: as a file has them, and those of who makes none on a machine with several.

A model that lies on "the CPU" should have the memory of all nodes read at once. So what is multiplied is split by rows (of
experts along their intermediate dimension), in proportion to what the nodes read in a second, and the rest lies in turns on all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.arch.units import UnitId
from engine.errors import PlacementError
from engine.hardware.machine import Machine
from engine.placement.placement import Numa, Placement
from engine.placement.spread import Interleave, Split, Spread

_NODE = re.compile(r"numa(\d{1,4})")
_SPLIT_KINDS = ("mixer", "ffn", "shared", "experts", "head")


def shares_of(machine: Machine, gbps: Mapping[int, float] | None = None) -> Split | None:
    """In which proportion the nodes of a machine take part: as they read, else as many cores as they have; None: it has one.

    gbps: by node, as measured.
    """
    told_apart = any(one.cpus for one in machine.nodes)
    working = [one for one in machine.nodes if one.cpus or not told_apart]
    if len(working) < 2:
        return None
    known = [rate for one in working if (rate := (gbps or {}).get(one.node) or one.read_gbps)]
    rates = known if len(known) == len(working) else [float(one.n_cores) for one in working]
    return Split(tuple((one.node, rate) for one, rate in zip(working, rates, strict=True)))


def over_nodes(placement: Placement, machine: Machine, gbps: Mapping[int, float] | None = None) -> Placement:
    """The placement with everything that lies on one node spread over all that have memory and cores. gbps: see `shares_of`."""
    placement, split = at_home(placement, machine), shares_of(machine, gbps)
    if split is None or placement.spreads or placement.nodes != (split.nodes[0],):
        return placement
    turns = Interleave(split.nodes)
    spreads = (
        (unit, split if unit.kind in _SPLIT_KINDS else turns) for unit, device in placement.units if isinstance(device, Numa)
    )
    return replace(placement, spreads=tuple(spreads))


def at_home(placement: Placement, machine: Machine) -> Placement:
    """The placement of who knows one CPU, numa0, where that node lacks memory or cores: on the first that has both."""
    home = next((one.node for one in machine.nodes if one.cpus), machine.nodes[0].node)
    if home == 0 or placement.spreads or placement.nodes != (0,):
        return placement
    return replace(placement, units=tuple((unit, Numa(home) if isinstance(one, Numa) else one) for unit, one in placement.units))


def with_spread(placement: Placement, units: Iterable[UnitId], spread: Spread | None) -> Placement:
    """The placement with some units spread so, None: each on its device alone. Caches and states go with the attention that
    reads them, pages of theirs in turns."""
    chosen = set(units)
    mixers = {unit.layer for unit in chosen if unit.kind == "mixer"}
    follow = {unit for unit, _ in placement.units if unit.kind in ("kv", "state") and unit.layer in mixers}
    kept = tuple((unit, one) for unit, one in placement.spreads if unit not in chosen | follow)
    if spread is None:
        return replace(placement, spreads=kept)
    turns = Interleave(spread.nodes)
    new = tuple((unit, turns if unit in follow else spread) for unit, _ in placement.units if unit in chosen | follow)
    home = Numa(spread.nodes[0])
    units_there = tuple((unit, home if unit in chosen | follow else device) for unit, device in placement.units)
    return replace(placement, units=units_there, spreads=(*kept, *new))


def spreads_to_json(placement: Placement) -> dict[str, Any]:
    """{"experts.4": {"split": {"numa0": 1.0, "numa1": 1.0}}, "kv.4": {"interleave": ["numa0", "numa1"]}}."""
    found: dict[str, Any] = {}
    for unit, _ in placement.spreads:
        spread = placement.spread_of(unit)
        if isinstance(spread, Split):
            found[str(unit)] = {"split": {f"numa{node}": share for node, share in spread.shares}}
        elif spread is not None:
            found[str(unit)] = {"interleave": [f"numa{node}" for node in spread.nodes]}
    return found


def spreads_from_json(value: Any, units: Sequence[UnitId], nodes: Sequence[int], where: str) -> tuple[tuple[UnitId, Spread], ...]:
    """The reverse, of a model with these units on a machine with these nodes. `where` names the file in messages.

    Raises:
        PlacementError: something else than that, or nodes that are not there.
    """
    if not isinstance(value, dict):
        raise PlacementError(
            f"{where}: its spreads are no object; write {{'experts.4': {{'split': {{'numa0': 1, 'numa1': 1}}}}}}"
        )
    known = {str(unit): unit for unit in units}
    found = []
    for name, given in value.items():
        if name not in known:
            raise PlacementError(f"{where}: this model has no unit {str(name)[:40]!r} to spread; make a placement for this model")
        found.append((known[name], _spread(given, nodes, f"{where}: the spread of {name}")))
    return tuple(sorted(found, key=lambda one: units.index(one[0])))


def _spread(given: Any, nodes: Sequence[int], where: str) -> Spread:
    kind, value = next(iter(given.items())) if isinstance(given, dict) and len(given) == 1 else ("", None)
    if kind == "split" and isinstance(value, dict):
        shares = tuple(sorted((_node(name, nodes, where), _share(share, where)) for name, share in value.items()))
        if len(shares) > 1:
            return Split(shares)
    if kind == "interleave" and isinstance(value, list):
        chosen = tuple(sorted({_node(name, nodes, where) for name in value}))
        if len(chosen) > 1:
            return Interleave(chosen)
    raise PlacementError(f"{where} is neither a split nor an interleaving of two nodes or more; correct the file")


def _node(name: Any, nodes: Sequence[int], where: str) -> int:
    match = _NODE.fullmatch(name) if isinstance(name, str) else None
    if match is None or int(match[1]) not in nodes:
        there = ", ".join(f"numa{node}" for node in nodes)
        raise PlacementError(f"{where} names {str(name)[:40]!r}; this machine has {there}")
    return int(match[1])


def _share(value: Any, where: str) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9 and math.isfinite(value)
    if not good:
        raise PlacementError(f"{where} has the share {str(value)[:40]!r}; a share is a number above 0")
    return float(value)
