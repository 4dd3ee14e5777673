"""What moving layers would bring: by the planner's arithmetic over models of two reports, within what Amdahl's law leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from engine.advice.diagnosis.finding import gain_sentence
from engine.advice.diagnosis.gains import LEAST_PERCENT, amdahl, curve, movable, rebalanced, relief
from engine.advice.diagnosis.measured import Measured, measured_of
from engine.api.pure import Gpu, Numa, Placement, Planner, machine_of, read_outline
from engine.api.values import LoadOptions
from tests.helpers.report_models import report_model
from tests.helpers.windows import card, facts, hybrid, window, with_cards, work


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Planner:
    """Qwen3-235B on a machine with two cards of 96 GB and one of 24."""
    folder = tmp_path_factory.mktemp("gains")
    cards = [{"name": "RTX PRO 6000", "memory_gib": 96, "count": 1}, {"name": "RTX 4090", "memory_gib": 24, "count": 1}]
    nodes = [{"name": "EPYC 9374F", "ram_gib": 576, "cores": 32, "read_gbps": 460.0}]
    path = folder / "machine.json"
    path.write_text(json.dumps({"name": "a box", "nodes": nodes, "gpus": cards}))
    outline = read_outline(str(report_model("qwen3-235b", folder, "Q4_K_M")))
    return Planner(outline, LoadOptions(n_ctx=8192, stream_experts="off"), machine_of(str(path)))


def experts_in_memory(planner: Planner) -> Placement:
    """All but the experts on the first card."""
    base = planner.default()
    units = [unit for unit, _ in base.units]
    there = planner.move(base, units, Gpu(0))
    return planner.move(there, [unit for unit in units if unit.kind == "experts"], Numa(0))


def measured(planner: Planner, placement: Placement) -> Measured:
    """A step exactly as the planner says."""
    found = planner.estimate(placement)
    whole = 1e3 / found.decode_tok_s
    return Measured({str(one.device): one.decode_ms / whole for one in found.devices if one.decode_ms})


def test_nothing_moved_gains_nothing_more_gains_more_and_amdahl_is_never_exceeded(planner: Planner) -> None:
    placement = experts_in_memory(planner)
    now = measured(planner, placement)
    units = movable(planner, placement, Numa(0), Gpu(0))
    points = curve(planner, placement, units, Gpu(0), now)
    assert len(points) > 10
    assert points[0].gain == 0.0
    for before, after in pairwise(points):
        limited = planner.estimate(after.placement).limit_device == Gpu(0)
        assert limited or after.gain >= before.gain - 1e-9
        assert after.gain <= amdahl(planner, placement, units[: after.k], now) + 1e-9
    assert planner.estimate(points[-1].placement).fits


def test_a_gain_never_exceeds_the_measured_share(planner: Planner) -> None:
    placement = experts_in_memory(planner)
    units = movable(planner, placement, Numa(0), Gpu(0))
    little = Measured({"numa0": 0.06, "gpu0": 0.9})
    points = curve(planner, placement, units, Gpu(0), little)
    assert max(one.gain for one in points) <= 1 / (1 - 0.06) - 1
    assert relief(planner, placement, "numa0", Measured({"numa0": 0.02, "gpu0": 0.95})) is None


def test_a_proposal_says_what_moves_where_and_what_it_brings(planner: Planner) -> None:
    placement = experts_in_memory(planner)
    gain = relief(planner, placement, "numa0", replace(measured(planner, placement), spread=0.1))
    assert gain is not None
    assert gain.percent >= LEAST_PERCENT
    assert gain.percent == round(gain.percent)
    before, after = planner.estimate(placement), planner.estimate(gain.placement)
    assert after.decode_tok_s / before.decode_tok_s - 1 == pytest.approx(gain.percent / 100, abs=0.006)
    assert gain.n_units == sum(placement.places[unit] != where for unit, where in gain.placement.units)
    assert gain_sentence(gain).startswith(f"Move {gain.n_units} more layers' experts to GPU 0 (")
    assert f"about +{gain.percent:.0f} % (give or take" in gain_sentence(gain)
    assert relief(planner, placement, "gpu0", measured(planner, placement)) is None


def test_where_no_card_has_room_nothing_is_proposed(planner: Planner) -> None:
    placement = experts_in_memory(planner)
    gain = relief(planner, placement, "numa0", measured(planner, placement))
    assert gain is not None
    again = relief(planner, planner.fit(), "numa0", measured(planner, planner.fit()))
    assert again is None or again.percent < gain.percent


def test_the_solver_is_asked_where_work_is_spread_badly(planner: Planner) -> None:
    placement = experts_in_memory(planner)
    gain = rebalanced(planner, placement, measured(planner, placement), lambda found: replace(found, workers=placement.workers))
    assert gain is not None
    assert gain.placement.workers == placement.workers
    assert rebalanced(planner, gain.placement, measured(planner, gain.placement), lambda found: found) is None


def test_what_is_measured_comes_from_the_window() -> None:
    found = measured_of(window(with_cards(card()), hybrid(0.5, 0.4), facts(1)))
    assert found is not None
    assert found.shares == pytest.approx({"numa0": 0.5, "gpu0": 0.4})
    assert found.depth == 1500
    assert found.spread == 0.0
    uneven = measured_of(window(works=lambda i: work(i, step_ms=40.0 + 20 * (i % 2))))
    assert uneven is not None
    assert uneven.spread > 0.15
    assert measured_of(window(works=lambda i: None)) is None
