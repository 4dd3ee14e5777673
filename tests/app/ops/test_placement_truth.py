"""The truth after load: bytes against bytes, and every kind of thing that can be otherwise than planned."""

from __future__ import annotations

from dataclasses import replace

from app.ops.placement_truth import OwnerBytes, against, elsewhere, misplaced, ranges_text, sentences
from engine.api.pure import Gpu, Numa, Pool, UnitId
from engine.api.values import HoldingInfo, HoldingTrend, LoadOptions
from engine.placement.over_nodes import with_spread
from engine.placement.spread import Split, even
from tests.helpers.fake_planner import BUFFERS, ScriptedPlanner, machine, outline

MODEL = outline(8, 2)
PLANNER = ScriptedPlanner(MODEL, LoadOptions(), machine())
PLACED = PLANNER.default()


def test_bytes_stand_side_by_side_and_what_nobody_counts_has_no_real_ones() -> None:
    prediction = PLANNER.estimate(PLACED)
    weights = prediction.of(Gpu(0)).owners.weights
    held = (
        HoldingInfo("gpu0", "weights", weights - 100),
        HoldingInfo("gpu0", "weights", 100),
        HoldingInfo("gpu0", "kept windows", 7),
        HoldingInfo("numa1", "weights", 5, mapped=True),
    )
    found = {(one.device, one.owner): one for one in against(prediction, held)}
    assert found[Gpu(0), "weights"] == OwnerBytes(Gpu(0), "weights", weights, weights)
    assert found[Gpu(0), "kept_windows"] == OwnerBytes(Gpu(0), "kept_windows", 0, 7)
    assert found[Gpu(0), "workspace"] == OwnerBytes(Gpu(0), "workspace", BUFFERS, 0)
    assert found[Numa(1), "weights"].mapped


def test_every_card_that_lies_elsewhere_is_named_with_both_places() -> None:
    """All of 40 misplacements are found, whatever they are."""
    for number, (unit, device) in enumerate(PLACED.units[:40]):
        other = Numa(0) if device != Numa(0) else Gpu(1)
        moved = replace(PLACED, units=tuple((one, other if one == unit else where) for one, where in PLACED.units))
        (found,) = misplaced(PLACED, moved)
        assert (found.units, found.asked, found.found) == ((unit,), device, other), number
    moved = PLANNER.move(PLACED, tuple(UnitId("experts", layer) for layer in (5, 6, 7)), Numa(0))
    spoken = sentences(PLACED, moved, (), (), None)
    assert spoken[0] == ("err", "Experts 5–7 should lie on NUMA 1 and lies on NUMA 0.")


def test_parts_over_several_nodes_and_copies_that_are_not_there_are_named() -> None:
    home = PLANNER.move(PLACED, tuple(UnitId("experts", layer) for layer in range(2, 8)), Numa(0))
    over = with_spread(home, [UnitId("experts", layer) for layer in (2, 3, 5)], even((0, 1)))
    assert elsewhere(over, over) == () and elsewhere(home, home) == ()
    (told,) = elsewhere(over, home)
    assert told == "Experts 2–3, 5 should lie on NUMA 0, NUMA 1 and lies on NUMA 0, or is cut otherwise."
    cut = with_spread(home, [UnitId("experts", layer) for layer in (2, 3, 5)], Split(((0, 3.0), (1, 1.0))))
    assert "cut otherwise" in elsewhere(over, cut)[0]
    pooled = replace(home, pools=tuple(Pool(layer, Gpu(0), (1, 2, 3)) for layer in (2, 3)))
    assert elsewhere(pooled, pooled) == ()
    assert elsewhere(pooled, home) == ("Hot experts 2–3 should lie on GPU 0 and are not all there.",)
    fewer = replace(home, pools=(pooled.pools[0], Pool(3, Gpu(0), (1, 2))))
    assert elsewhere(pooled, fewer) == ("Hot experts 3 should lie on GPU 0 and are not all there.",)
    others = replace(home, pools=tuple(replace(pool, experts=(7, 8, 9)) for pool in pooled.pools))
    assert elsewhere(pooled, others) == ()  # which experts they are follows the text
    assert sentences(pooled, home, (), (), None)[0][0] == "err"


def test_slow_kernels_leaks_and_strange_pages_are_told_before_what_is_right() -> None:
    leak = HoldingTrend("gpu0", 10, 140_000.0, 600.0, "gpu0 grows by 0.5 GB an hour without a reason that is known")
    spoken = sentences(PLACED, PLACED, ("IQ2_XS is multiplied exactly on the CPU, several times slower",), (leak,), 0.31)
    assert [tone for tone, _ in spoken] == ["warn", "warn", "warn", "ok"]
    assert "0.5 GB an hour" in spoken[1][1]
    assert spoken[2][1].startswith("31.0 %")


def test_a_model_that_is_as_planned_is_told_so() -> None:
    spoken = sentences(PLACED, PLACED, (), (HoldingTrend("gpu0", 10, 0.0, 600.0),), 0.001)
    assert {tone for tone, _ in spoken} == {"ok"}
    assert any("10 min" in text for _, text in spoken)
    assert not any("steady" in text for _, text in sentences(PLACED, PLACED, (), (HoldingTrend("gpu0", 10, 9e6, 0.1),), None))


def test_ranges() -> None:
    assert ranges_text([4, 5, 6, 9]) == "4–6, 9"
    assert ranges_text([1]) == "1"
