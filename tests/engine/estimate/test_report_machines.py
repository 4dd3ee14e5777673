"""The machines and models of two field reports, from headers and machine files: bounds, memory, the best placement, and a plan
that cannot be. Rates of memories are those that they are sold with, as in the reports."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine.api.pure import Gpu, Machine, ModelOutline, Numa, Placement, Planner, UnitId, machine_of, read_outline
from engine.api.values import LoadOptions
from engine.errors import PlacementError
from engine.placement.source import resolve_source
from tests.helpers.beside import BESIDE
from tests.helpers.report_models import Kind, Mix, report_model

GENOA = {"name": "EPYC 9374F", "ram_gib": 576, "cores": 32, "read_gbps": 460.0}
MILAN = {"name": "EPYC 7B13", "ram_gib": 64, "cores": 64, "read_gbps": 204.8, "count": 2}
EXPERTS_ON_CPU = "-ngl 99 -ot exps=CPU"
OPTIONS = LoadOptions(n_ctx=16384, stream_experts="off")


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("headers")


@cache
def outline(kind: Kind, mix: Mix, folder: Path) -> ModelOutline:
    return read_outline(str(report_model(kind, folder, mix)))


def machine(folder: Path, node: dict[str, Any], card: str, gib: int, count: int = 1) -> Machine:
    path = folder / "machine.json"
    value = {"name": "a box", "nodes": [node], "gpus": [{"name": card, "memory_gib": gib, "count": count}]}
    path.write_text(json.dumps(value), encoding="utf-8")
    return machine_of(str(path))


def placed(planner: Planner, flags: str) -> Placement:
    model = planner.model
    return resolve_source(flags, model.spec, model.graph, model.file, planner.machine.gpus, planner.options).placement


@pytest.mark.parametrize(
    ("kind", "mix", "card", "gib", "bound", "published"),
    [
        ("deepseek-r1", "Q4_K_M", "RTX 4090", 24, 37, 9.4),
        ("deepseek-r1", "IQ4_XS", "RTX 4090", 24, 42, 15.8),
        ("deepseek-r1", "Q4_K_M", "RTX 5090", 32, 37, 17.4),
        ("qwen3-235b", "Q4_K_M", "RTX 5090", 32, 54, 26.4),
    ],
)
def test_bounds_are_those_of_the_reports_and_our_prediction_lies_between(
    tmp_path: Path, headers: Path, kind: Kind, mix: Mix, card: str, gib: int, bound: float, published: float
) -> None:
    planner = Planner(outline(kind, mix, headers), OPTIONS, machine(tmp_path, GENOA, card, gib))
    found = planner.refine(placed(planner, EXPERTS_ON_CPU))
    assert found.fits and found.bound_tok_s == pytest.approx(bound, rel=0.05)
    assert (found.limit_device, found.limit) == (Numa(0), "memory read")
    # The reports reach 25 to 49 % of the bound; so do we, with what this engine makes of its own machine's memory.
    assert 0.4 < found.decode_tok_s / found.bound_tok_s < 0.65
    assert published < found.decode_tok_s < 2.2 * published


@pytest.mark.parametrize(
    ("kind", "mix", "card", "gib", "ram_gb", "vram_gb"),
    [("deepseek-r1", "IQ4_XS", "RTX 4090", 24, 341, 18.4), ("qwen3-235b", "Q4_K_M", "RTX 5090", 32, 128, 19.6)],
)
def test_what_the_reports_held_in_memory_leaves_what_they_held_on_the_gpu(
    tmp_path: Path, headers: Path, kind: Kind, mix: Mix, card: str, gib: int, ram_gb: float, vram_gb: float
) -> None:
    planner = Planner(outline(kind, mix, headers), OPTIONS, machine(tmp_path, GENOA, card, gib))
    placement = placed(planner, EXPERTS_ON_CPU)
    experts = [unit for unit, _ in placement.units if unit.kind == "experts"]
    while planner.estimate(placement).of(Numa(0)).owners.weights > (ram_gb + 1) * 1e9:
        placement = planner.move(placement, [experts.pop()], Gpu(0))
    found = planner.refine(placement)
    assert found.of(Numa(0)).owners.weights == pytest.approx(ram_gb * 1e9, abs=2e9)
    assert found.of(Gpu(0)).used == pytest.approx(vram_gb * 1e9, abs=2e9)


@pytest.mark.parametrize("box", ("one card", "four cards"))
@pytest.mark.parametrize("kind", ("qwen3.5-122b", "qwen3-235b", "deepseek-r1"))
def test_the_best_placement_is_found_within_a_second(tmp_path: Path, headers: Path, kind: Kind, box: str) -> None:
    """CPU time, so that a busy machine changes nothing."""
    model = outline(kind, "Q4_K_M", headers)
    milan = MILAN | {"ram_gib": 512}
    there = machine(tmp_path, GENOA, "RTX 5090", 32) if box == "one card" else machine(tmp_path, milan, "RTX 4090", 24, 4)
    planner = Planner(model, LoadOptions(n_ctx=16384), there)
    started = time.process_time()
    placement = planner.fit()
    assert time.process_time() - started < 1.0
    found = planner.refine(placement)
    assert found.fits
    for unit, where in placement.units:
        if unit.kind in ("mixer", "kv", "state", "shared", "head"):
            assert isinstance(where, Gpu), unit
    # At least as fast as with all experts in memory, and as what loading would choose.
    simple = planner.move(placement, [unit for unit, _ in placement.units if unit.kind == "experts"], Numa(0))
    assert found.decode_tok_s >= planner.estimate(simple).decode_tok_s
    assert found.decode_tok_s >= 0.99 * planner.estimate(planner.default()).decode_tok_s


def test_placements_over_two_nodes_are_estimated_node_by_node(tmp_path: Path, headers: Path) -> None:
    there = machine(tmp_path, MILAN | {"ram_gib": 256}, "RTX 4090", 24, 4)
    planner = Planner(outline("deepseek-r1", "Q4_K_M", headers), OPTIONS, there)
    spread = planner.fit()
    whole = replace(spread, spreads=())
    half = [unit for unit, where in whole.units if unit.kind == "experts" and where == Numa(0)][::2]
    both = planner.refine(planner.move(whole, half, Numa(1)))
    one, split = planner.refine(whole), planner.refine(spread)
    assert split.of(Numa(0)).experts == pytest.approx(split.of(Numa(1)).experts) == pytest.approx(one.of(Numa(0)).experts / 2)
    assert split.of(Numa(0)).decode_ms == pytest.approx(split.of(Numa(1)).decode_ms, rel=0.01)
    assert split.of(Numa(0)).decode_ms < 0.55 * one.of(Numa(0)).decode_ms  # both nodes read their half at once
    assert split.decode_tok_s > 1.2 * both.decode_tok_s  # whole experts on either node are read one after another
    assert one.of(Numa(0)).capacity == 512 << 30 and both.of(Numa(0)).capacity == both.of(Numa(1)).capacity == 256 << 30
    assert both.fits and both.of(Numa(0)).experts + both.of(Numa(1)).experts == one.of(Numa(0)).experts
    assert both.of(Numa(1)).decode_ms == pytest.approx(both.of(Numa(0)).decode_ms, rel=0.05)
    assert both.bound_tok_s == pytest.approx(2 * one.bound_tok_s, rel=0.05)


def test_the_plan_of_unquantised_weights_is_refused_with_the_arithmetic(tmp_path: Path, headers: Path) -> None:
    """Four cards of 24 GB and 128 GB of memory; 45 of 48 layers on the cards, as the report has it."""
    model = outline("qwen3.5-122b", "F16", headers)
    planner = Planner(model, LoadOptions(n_ctx=16384), machine(tmp_path, MILAN, "RTX 4090", 24, 4))
    assert 240e9 < model.info.file_bytes < 250e9
    with pytest.raises(PlacementError) as refused:
        planner.fit()
    assert "GB of weights" in str(refused.value) and "24" in str(refused.value) and "missing" in str(refused.value)
    found = planner.estimate(placed(planner, "-ngl 45"))
    assert not found.fits and found.limit == "room"
    assert sum(one.over for one in found.devices) > 100e9
    assert planner.fix(placed(planner, "-ngl 45")) is None


def test_a_longer_context_says_what_leaves_which_card(tmp_path: Path, headers: Path) -> None:
    planner = Planner(outline("qwen3-235b", "Q4_K_M", headers), OPTIONS, machine(tmp_path, GENOA, "RTX 5090", 32))
    placement = planner.fit()
    plan = planner.context(placement, 32768)
    assert plan.fits and plan.moves and "experts" in plan.sentence and "3.2 GB more" in plan.sentence
    # 94 layers of 4 heads of 128 keys and 128 values in f16
    assert plan.extra_bytes == pytest.approx(16384 * 94 * 4 * 256 * 2, rel=0.01)
    longer = Planner(planner, LoadOptions(n_ctx=32768, stream_experts="off"), planner.machine)
    assert longer.refine(plan.placement).fits and not longer.refine(placement).fits
    assert planner.context(placement, 4096).placement == placement
    gone = {unit for unit, where in placement.units if plan.placement.device_of(unit) != where}
    assert {unit.kind for unit in gone} == {"experts"} and UnitId("experts", 93) in gone
    other = planner.context(placement, 32768, gone)
    left = {unit for unit, where in placement.units if other.placement.device_of(unit) != where}
    assert other.fits and left and not left & gone
    fast = {unit for unit, _ in placement.units if unit.kind in ("mixer", "experts")}
    held = planner.context(placement, 32768, fast)
    assert not held.fits and held.placement == placement and "nothing that could move" in held.sentence


@pytest.mark.parametrize("grow", (False, True))
def test_a_drag_has_new_numbers_within_16_ms(tmp_path: Path, headers: Path, grow: bool) -> None:
    """94 layers of four cards and 1,131 tensors over six devices. CPU time, the least of four planners: each sees a move once.

    grow: with the chunk of prompts that loading would choose for each placement.
    """
    model = outline("qwen3-235b", "Q4_K_M", headers)
    there = machine(tmp_path, MILAN | {"ram_gib": 512}, "RTX 4090", 24, 4)
    planners = [Planner(model, LoadOptions(n_ctx=16384, grow_chunk=grow), there) for _ in range(4)]
    start = planners[0].fit()
    for planner in planners:
        planner.prepare(start)
        planner.estimate(start)
    rng, moves = random.Random(1), []
    for _ in range(60):
        kind, first = rng.choice(("mixer", "ffn", "experts", "kv")), rng.randrange(94)
        last = first + 1 + (rng.randrange(30) if rng.random() < 0.5 else 0)
        units = [UnitId(kind, i) for i in range(first, min(last, 94))]  # type: ignore[arg-type]
        moves.append((units, rng.choice(planners[0].devices)))
    runs: list[list[float]] = []
    for planner in planners:  # one after the other: a shared machine is half as fast for seconds
        runs.append([])
        for units, device in moves:
            started = time.thread_time()
            planner.estimate(planner.move(start, units, device))
            runs[-1].append(time.thread_time() - started)
    taken = sorted(map(min, *runs))
    assert taken[-1] < 0.016 * BESIDE and taken[len(taken) // 2] < 0.010 * BESIDE, [round(1e3 * one, 1) for one in taken[-8:]]


def test_units_are_split_over_nodes_and_brought_together(tmp_path: Path, headers: Path) -> None:
    model = outline("qwen3-235b", "Q4_K_M", headers)
    planner = Planner(model, OPTIONS, machine(tmp_path, MILAN | {"ram_gib": 256}, "RTX 4090", 24, 4))
    units = (UnitId("experts", 3), UnitId("mixer", 3))
    start = planner.move(planner.fit(), units, Numa(1))
    assert not planner.nodes_refusal(start, units)
    split = planner.into_memory(start, units)
    assert all(split.nodes_of(unit) == (0, 1) for unit in (*units, UnitId("kv", 3)))
    assert planner.refine(split).fits
    together = planner.off_nodes(split, units)
    assert all(together.nodes_of(unit) == (0,) for unit in (*units, UnitId("kv", 3)))
    alone = Planner(model, OPTIONS, machine(tmp_path, GENOA, "RTX 4090", 24))
    assert "one memory node" in alone.nodes_refusal(alone.fit(), units) and "another device" in alone.nodes_refusal(
        alone.fit(), units
    )
