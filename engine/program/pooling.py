"""Experts of which some have copies in a pool on the GPU of their router, which computes those; the CPU computes the others.

The router says where each choice is computed: `here` holds slots of the pool, -1 elsewhere; `there` holds ids of experts, -1
where the pool has them. So no other kernel knows of pools, on either side, and what lies where may change between two steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from engine.arch.units import UnitId
from engine.errors import PlacementError
from engine.graph.ops import Add, Buffer, Experts, Op, Route
from engine.placement.placement import Device, Placement
from engine.placement.pools import refusal


@dataclass(frozen=True, slots=True)
class PoolSplit:
    """here, there = chosen, told apart by who computes it; [n_rows, n_used] int32. Stands right behind its Route."""

    unit: UnitId
    chosen: Buffer
    here: Buffer
    there: Buffer
    n_slots: int


def with_pools(ops: Sequence[Op], placement: Placement, homes: Mapping[UnitId, Device]) -> list[Op | PoolSplit]:
    """The ops of a step, renamed, with the parts of pools. homes: of all units.

    Raises:
        PlacementError: a pool apart from its router.
    """
    if not placement.pools:
        return list(ops)
    places = dict(homes)
    found: list[Op | PoolSplit] = []
    splits: dict[str, PoolSplit] = {}
    at = 0
    while at < len(ops):
        op = ops[at]
        at += 1
        if isinstance(op, Route):
            found.append(op)
            pool = placement.pool_of(op.unit.layer)
            if pool is not None:
                if problem := refusal(pool, places):
                    raise PlacementError(problem)
                here, there = (Buffer(f"{op.chosen.name}.{side}", op.chosen.width) for side in ("here", "there"))
                split = PoolSplit(op.unit, op.chosen, here, there, len(pool.experts))
                splits[op.chosen.name] = split
                found.append(split)
        elif isinstance(op, Experts) and op.chosen.name in splits:
            joined, n_more = _joined(op, ops[at : at + 2], splits[op.chosen.name], homes)
            at += n_more
            found += joined
        else:
            found.append(op)
    return found


def _joined(op: Experts, after: Sequence[Op], split: PoolSplit, homes: Mapping[UnitId, Device]) -> tuple[list[Op], int]:
    """What stands for the experts of a layer and adds both parts, and how many of the ops behind them it stands for too.

    The pool's part goes into the stream by itself, with a shared expert that lies beside it: the CPU computes meanwhile.
    """
    gpu = homes[split.unit]
    part = Buffer(f"{op.out.name}.pool", op.out.width)
    pooled = replace(op, unit=split.unit, chosen=split.here, out=part, n_experts=split.n_slots, pooled=True)
    rest = replace(op, chosen=split.there)
    beside, last = (after[0] if after else None), (after[-1] if after else None)
    if isinstance(beside, Add) and beside.x == op.out and beside.y != op.out:
        ours = homes.get(UnitId("shared", split.unit.layer)) == gpu
    else:
        beside, last, ours = None, beside, False
    if not isinstance(last, Add) or last.y != op.out or last.x in (op.out, op.x) or last.share is not None:
        return [pooled, rest, Add(split.unit, op.out, part)], 0
    aside: list[Op] = [] if beside is None else [replace(beside, x=part) if ours else beside]
    summed = [pooled, *aside, rest] if ours else [pooled, rest, *aside]
    return [*summed, Add(last.unit, last.x, part), last], 1 + len(aside)
