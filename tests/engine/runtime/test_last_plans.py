"""Plans are lowered once for the placements that a model had last."""

from __future__ import annotations

from dataclasses import replace

from engine.arch.units import UnitId
from engine.placement.placement import Gpu, Numa, Placement, WorkerPlan
from engine.runtime.last_plans import KEPT, LastPlans

UNIT = UnitId("ffn", 0)


def test_what_comes_back_is_known_until_others_came() -> None:
    plans, lowered = LastPlans(), list[int]()
    placements = [_on(i) for i in range(KEPT + 1)]

    def of(i: int) -> None:
        plans.of(placements[i], lambda: (lowered.append(i), ())[1])

    for i in (*range(KEPT), *range(KEPT)):
        of(i)
    assert lowered == list(range(KEPT))
    of(KEPT)  # for which the one that was asked for longest ago goes
    of(1)
    of(0)
    assert lowered == [*range(KEPT), KEPT, 0]
    plans.of(replace(placements[0], k_type="q8_0"), lambda: (lowered.append(99), ())[1])
    assert lowered[-1] == 99


def _on(i: int) -> Placement:
    return Placement(((UNIT, Gpu(i) if i else Numa(0)),), "f16", "f16", WorkerPlan((0,)))
