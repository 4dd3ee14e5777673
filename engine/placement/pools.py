"""Pools of experts in a placement: their part of its file, and which of them mean anything."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from engine.arch.spec import ModelSpec, MoeFfn
from engine.arch.units import UnitId
from engine.errors import PlacementError
from engine.placement.placement import Device, Gpu, Numa, Placement, Pool

_UNIT = re.compile(r"experts\.(\d{1,6})")
_GPU = re.compile(r"gpu(\d{1,4})")


def pools_to_json(pools: Iterable[Pool]) -> dict[str, dict[str, list[int]]]:
    """{"experts.4": {"gpu1": [3, 17]}}."""
    return {f"experts.{pool.layer}": {str(pool.gpu): list(pool.experts)} for pool in pools}


def pools_from_json(value: Any, where: str) -> tuple[Pool, ...]:
    """The reverse. `where` names the file in messages.

    Raises:
        PlacementError: something else than that.
    """
    if not isinstance(value, dict):
        raise PlacementError(f"{where}: its pools are no object; write {{'experts.4': {{'gpu0': [3, 17]}}}}")
    return tuple(sorted((_pool(name, given, where) for name, given in value.items()), key=lambda pool: pool.layer))


def _pool(name: str, given: Any, where: str) -> Pool:
    unit = _UNIT.fullmatch(name)
    device, experts = next(iter(given.items())) if isinstance(given, dict) and len(given) == 1 else ("", None)
    gpu = _GPU.fullmatch(device)
    numbers = isinstance(experts, list) and all(type(one) is int for one in experts)
    if unit is None or gpu is None or not numbers:
        raise PlacementError(f"{where}: the pool {name[:40]!r} is not one GPU and a list of experts; correct the file")
    return Pool(int(unit[1]), Gpu(int(gpu[1])), tuple(experts or ()))


def check_pools(placement: Placement, spec: ModelSpec, where: str) -> None:
    """Raises PlacementError where a pool cannot be: why, and what to do."""
    n_experts = {block.index: block.ffn.n_experts for block in spec.blocks if isinstance(block.ffn, MoeFfn)}
    seen: set[int] = set()
    for pool in placement.pools:
        name, n = f"the pool of experts.{pool.layer}", n_experts.get(pool.layer, 0)
        if not n:
            raise PlacementError(f"{where}: layer {pool.layer} has no experts to pool; leave its pool out")
        if pool.layer in seen:
            raise PlacementError(f"{where}: experts.{pool.layer} has two pools; put all its copies into one")
        seen.add(pool.layer)
        if not pool.experts or len(set(pool.experts)) < len(pool.experts) or not all(0 <= one < n for one in pool.experts):
            raise PlacementError(f"{where}: {name} must name some of the experts 0 to {n - 1}, each once; correct it")
        problem = refusal(pool, dict(placement.units))
        if problem:
            raise PlacementError(f"{where}: {problem}")


def refusal(pool: Pool, places: dict[UnitId, Device]) -> str:
    """Why a pool has no sense where units lie so, and what to do; empty where it has."""
    home, router = places.get(UnitId("experts", pool.layer)), places.get(UnitId("ffn", pool.layer))
    if not isinstance(home, Numa):
        return f"experts.{pool.layer} is on {home} as a whole; leave its pool out, or put it on the CPU"
    if router != pool.gpu:
        return f"the pool of experts.{pool.layer} is on {pool.gpu} and ffn.{pool.layer}, its router, on {router}; put both there"
    return ""


def with_pool(placement: Placement, layer: int, experts: Iterable[int]) -> Placement:
    """The placement with a pool of these experts on the GPU of the layer's router, in the place of another; of none: without.

    Raises:
        PlacementError: the layer cannot have one, and why.
    """
    others = [pool for pool in placement.pools if pool.layer != layer]
    wanted, places = tuple(experts), dict(placement.units)
    if not wanted:
        return replace(placement, pools=tuple(others))
    router = places.get(UnitId("ffn", layer))
    if UnitId("experts", layer) not in places:
        raise PlacementError(f"layer {layer} has no experts to pool; choose another layer")
    if not isinstance(router, Gpu):
        raise PlacementError(f"a pool lies on the GPU of its router, and ffn.{layer} is on {router}; put that on a GPU first")
    pool = Pool(layer, router, wanted)
    if problem := refusal(pool, places):
        raise PlacementError(problem)
    return replace(placement, pools=tuple(sorted((*others, pool), key=lambda one: one.layer)))


def with_sensible_pools(placement: Placement) -> Placement:
    """The placement without the pools that have lost their sense, as when a unit was moved."""
    places = dict(placement.units)
    kept = tuple(pool for pool in placement.pools if not refusal(pool, places))
    return placement if kept == placement.pools else replace(placement, pools=kept)
