"""What should leave a device: of a card that is gone, full or hot, and of memory that is too small, as the planner reckons."""

from __future__ import annotations

import json

import pytest

from engine.advice.diagnosis.departures import EASED, SMALL_CACHE, eased, lightened, vacated
from engine.advice.diagnosis.finding import gain_sentence
from engine.advice.diagnosis.gains import RESERVE_BYTES
from engine.advice.diagnosis.measured import Measured
from engine.api.pure import Gpu, Numa, Placement, Planner, UnitId, machine_of, read_outline
from engine.api.values import LoadOptions
from tests.helpers.report_models import report_model

GB = 10**9


def planner_on(folder, cards, nodes, n_ctx: int = 8192, model: str = "qwen3-235b", quant: str = "Q4_K_M") -> Planner:  # type: ignore[no-untyped-def]
    path = folder / "machine.json"
    path.write_text(json.dumps({"name": "a box", "nodes": nodes, "gpus": cards}))
    outline = read_outline(str(report_model(model, folder, quant)))
    return Planner(outline, LoadOptions(n_ctx=n_ctx, stream_experts="off"), machine_of(str(path)))


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Planner:
    """Qwen3-235B on a machine with a card of 96 GB and one of 24."""
    cards = [{"name": "RTX PRO 6000", "memory_gib": 96, "count": 1}, {"name": "RTX 4090", "memory_gib": 24, "count": 1}]
    nodes = [{"name": "EPYC 9374F", "ram_gib": 576, "cores": 32, "read_gbps": 460.0}]
    return planner_on(tmp_path_factory.mktemp("departures"), cards, nodes)


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Planner:
    """The same model, a card that holds all of it, and two slow nodes of memory."""
    cards = [{"name": "B200", "memory_gib": 180, "count": 1}]
    nodes = [{"name": "old", "ram_gib": 288, "cores": 8, "read_gbps": 40.0} for _ in range(2)]
    return planner_on(tmp_path_factory.mktemp("departures2"), cards, nodes)


def on_first_card(planner: Planner, n_layers: int) -> Placement:
    """Attention and all else on the first card with the experts of n layers; the other experts in memory."""
    base = planner.default()
    there = planner.into_memory(planner.move(base, [unit for unit, _ in base.units], Gpu(0)), [])
    rest = [unit for unit, _ in there.units if unit.kind == "experts" and unit.layer >= n_layers]
    return planner.into_memory(there, rest)


def on_gpu(placement: Placement, gpu: int) -> list[str]:
    return [str(unit) for unit, where in placement.units if where == Gpu(gpu)]


def test_what_lay_on_a_lost_card_goes_to_the_other_and_the_rest_into_memory(planner: Planner) -> None:
    placement = on_first_card(planner, 20)
    gain = vacated(planner, placement, "gpu0", None)
    assert gain is not None
    assert on_gpu(gain.placement, 0) == []
    assert planner.estimate(gain.placement).fits
    after = planner.estimate(gain.placement).of(Gpu(1))
    assert after.capacity - after.used >= RESERVE_BYTES
    # Attention, which a card reads best for its bytes, found room on the other one, experts did not all.
    assert len([one for one in on_gpu(gain.placement, 1) if one.startswith("mixer")]) > 80
    assert any(where == Numa(0) for unit, where in gain.placement.units if unit.kind == "experts" and unit.layer < 20)
    # Caches go where their attention is.
    places = gain.placement.places
    assert all(where == places[UnitId("mixer", unit.layer)] for unit, where in gain.placement.units if unit.kind == "kv")
    assert gain.percent < 0 and gain.spread == 0
    assert gain.text == "Move what lay on GPU 0 to GPU 1 and memory node 0"
    assert f"about {gain.percent:.0f} %" in gain_sentence(gain)
    assert vacated(planner, placement, "gpu7", None) is None


def test_a_lost_card_without_which_the_model_fits_nowhere_has_no_proposal(tmp_path_factory: pytest.TempPathFactory) -> None:
    cards = [{"name": "RTX PRO 6000", "memory_gib": 96, "count": 2}]
    nodes = [{"name": "small", "ram_gib": 32, "cores": 8, "read_gbps": 60.0}]
    planner = planner_on(tmp_path_factory.mktemp("tight"), cards, nodes)
    placement = planner.fit()
    assert on_gpu(placement, 0) and on_gpu(placement, 1)
    assert vacated(planner, placement, "gpu1", None) is None


def test_a_full_card_gets_the_room_that_was_asked_for_and_no_more(planner: Planner) -> None:
    placement = on_first_card(planner, 20)
    before = planner.estimate(placement)
    gain = lightened(planner, placement, "gpu0", 2 * GB, Measured({"numa0": 0.6, "gpu0": 0.35}, 0, 0.1))
    assert gain is not None
    after = planner.estimate(gain.placement)
    freed = before.of(Gpu(0)).used - after.of(Gpu(0)).used
    assert 2 * GB <= freed < 5 * GB  # the experts of a layer are 1.4 GB
    assert after.fits
    assert gain.text.startswith("Move ") and f"which frees {freed / 1e9:.1f} GB" in gain.text
    # Another card is better than memory, while it has room.
    assert gain.device == Gpu(1)
    assert gain.percent >= -3
    placed = planner.estimate(gain.placement, depth=0).decode_tok_s / planner.estimate(placement, depth=0).decode_tok_s - 1
    assert gain.percent == pytest.approx(100 * placed, abs=0.6) or gain.percent < 100 * placed


def test_where_leaving_costs_speed_a_smaller_cache_is_offered_if_it_frees_as_much(two_nodes: Planner) -> None:
    base = two_nodes.default()
    placement = two_nodes.move(base, [unit for unit, _ in base.units], Gpu(0))
    assert two_nodes.estimate(placement).fits
    assert placement.k_type == "f16"
    kv = two_nodes.estimate(placement).of(Gpu(0)).kv
    gain = lightened(two_nodes, placement, "gpu0", kv // 4, None)
    assert gain is not None
    assert (gain.placement.k_type, gain.placement.v_type) == (SMALL_CACHE, SMALL_CACHE)
    assert gain.placement.units == placement.units
    assert gain_sentence(gain).endswith("once loaded again: about the same speed.")
    # More than that frees: layers have to leave, into the memory of both nodes.
    gain = lightened(two_nodes, placement, "gpu0", kv, None)
    assert gain is not None and gain.placement.k_type == "f16"
    went = [unit for unit, where in gain.placement.units if placement.places[unit] != where and unit.kind == "experts"]
    assert went and all(gain.placement.nodes_of(unit) == (0, 1) for unit in went)
    assert "to memory" in gain.text and gain.percent <= 0


def test_a_hot_card_has_a_fifth_less_to_do(planner: Planner) -> None:
    placement = on_first_card(planner, 20)
    gain = eased(planner, placement, "gpu0", Measured({"numa0": 0.5, "gpu0": 0.45}))
    assert gain is not None
    before, after = planner.estimate(placement), planner.estimate(gain.placement)
    assert after.of(Gpu(0)).decode_ms <= EASED * before.of(Gpu(0)).decode_ms
    assert after.of(Gpu(0)).decode_ms >= 0.5 * before.of(Gpu(0)).decode_ms
    assert after.fits
    assert eased(planner, placement, "gpu1", None) is None  # nothing lies there
    assert eased(planner, placement, "numa0", None) is None


def test_what_would_cost_more_than_the_heat_is_not_proposed(tmp_path_factory: pytest.TempPathFactory) -> None:
    cards = [{"name": "B200", "memory_gib": 180, "count": 1}]
    nodes = [{"name": "old", "ram_gib": 256, "cores": 4, "read_gbps": 12.0}]
    planner = planner_on(tmp_path_factory.mktemp("slow"), cards, nodes)
    base = planner.default()
    placement = planner.move(base, [unit for unit, _ in base.units], Gpu(0))
    assert planner.estimate(placement).fits
    assert eased(planner, placement, "gpu0", None) is None


def test_memory_becomes_free_where_layers_go_to_a_card(planner: Planner) -> None:
    placement = on_first_card(planner, 0)
    before = planner.estimate(placement)
    gain = lightened(planner, placement, "numa0", 6 * GB, None)
    assert gain is not None
    freed = before.of(Numa(0)).used - planner.estimate(gain.placement).of(Numa(0)).used
    assert 6 * GB <= freed < 9 * GB
    assert gain.text.startswith("Move the experts of ") and "which frees" in gain.text
    assert gain.percent >= 0
    # More than all cards have room for: as much as there is.
    most = lightened(planner, placement, "numa0", 100 * GB, None)
    assert most is not None and most.moved_bytes > 50 * GB
    assert planner.estimate(most.placement).fits
    assert lightened(planner, most.placement, "numa0", 100 * GB, None) is None  # what is left is too little to be felt
    assert lightened(planner, placement, "numa0", 0, None) is None
