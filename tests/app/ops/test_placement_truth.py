"""The truth after load: bytes against bytes, and every kind of thing that can be otherwise than planned."""

from __future__ import annotations

from dataclasses import replace

from app.ops.placement_truth import OwnerBytes, against, misplaced, ranges_text, sentences
from engine.api.pure import Gpu, Numa, UnitId
from engine.api.values import HoldingInfo, HoldingTrend, LoadOptions
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


def test_ranges() -> None:
    assert ranges_text([4, 5, 6, 9]) == "4–6, 9"
    assert ranges_text([1]) == "1"
