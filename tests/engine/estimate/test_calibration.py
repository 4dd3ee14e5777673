"""Calibrations: measured, kept by machine, taught by what really happens."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from engine.api.pure import ModelOutline, load_rates, read_outline, save_rates
from engine.api.values import LoadOptions
from engine.errors import InvalidRequest
from engine.estimate.calibration import calibration_path, from_json, to_json
from engine.estimate.planner import Planner
from engine.estimate.rates import Calibration, FormatRates, GpuRates, NodeRates, assumed
from engine.hardware.gpus import GpuInfo
from engine.hardware.machine import Machine, NodeInfo, this_machine
from engine.placement.placement import Gpu, Numa
from engine.runtime.calibrate import calibrate, read_gbps
from tests.helpers.golden_models import golden

GIB = 1 << 30
BOX = Machine(
    64 * GIB, 64 * GIB, (GpuInfo(0, "RTX 4090", 24 * GIB, 24 * GIB),), nodes=(NodeInfo(0, "EPYC", 64 * GIB, 64 * GIB, 8, 200.0),)
)
OPTIONS = LoadOptions(n_threads=2, n_ctx=256, prefill_chunk=64)


def outline() -> ModelOutline:
    return read_outline(str(golden("qwen3moe").path))


@pytest.fixture(scope="module")
def measured() -> Calibration:
    return calibrate(this_machine({"LAYERDECK_GPU": "none"}))


def test_this_machine_is_measured(measured: Calibration) -> None:
    """What holds of any machine, however busy: figures are there, and more threads never read less."""
    (node,) = measured.nodes
    assert measured.measured and not measured.gpus
    rates = [rate for _, rate in node.read_gbps]
    assert rates == sorted(rates) and rates[0] > 0.1 and node.limit == rates[-1]
    assert node.read_gbps[0][0] == 1
    by_name = dict(node.formats)
    assert {"F32", "F16", "Q8_0", "Q4_K", "Q6_K", "IQ4_XS"} <= set(by_name)
    for one in by_name.values():
        assert one.stream_gbps > 0 and 0 < one.share <= 1 and one.gops > 0 and one.unpack_ns >= 0
    assert read_gbps(1) > 0


def test_nodes_are_measured_on_their_own_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []

    def measure(cpus: tuple[int, ...]) -> NodeRates:
        asked.append(cpus)
        return NodeRates(((len(cpus), 10.0 + cpus[0]),))

    monkeypatch.setattr("engine.runtime.calibrate.measure_node", measure)
    here = tuple(sorted(os.sched_getaffinity(0)))
    two = replace(BOX, gpus=(), nodes=tuple(NodeInfo(i, "", GIB, GIB, 1, cpus=cpus) for i, cpus in enumerate((here[:1], ()))))
    found = calibrate(two)
    assert asked == [here[:1], here] and [one.limit for one in found.nodes] == [10.0 + here[0]] * 2


def test_it_is_kept_for_its_machine_alone(tmp_path: Path, measured: Calibration) -> None:
    machine = this_machine({"LAYERDECK_GPU": "none"})
    assert load_rates(machine, tmp_path) is None
    save_rates(measured, machine, tmp_path)
    assert load_rates(machine, tmp_path) == measured
    assert [one.name for one in tmp_path.iterdir()] == [calibration_path(tmp_path, machine).name]
    assert load_rates(BOX, tmp_path) is None
    assert (
        Planner(outline(), OPTIONS, machine, load_rates(machine, tmp_path))
        .estimate(Planner(outline(), OPTIONS, machine).default())
        .calibrated
    )
    calibration_path(tmp_path, machine).write_bytes(b"\xff\x00")
    assert load_rates(machine, tmp_path) is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"version": 2}, "no calibration that this version reads"),
        ({"layerdeck": "placement"}, "no calibration that this version reads"),
        ({"machine": "0" * 16}, "of another machine"),
        ({"isa": "none of ours"}, "of another machine"),
        ({"nodes": []}, "of another machine"),
        ({"nodes": 3}, "cannot be read"),
        ({"gpus": [{"read_gbps": "fast"}]}, "cannot be read"),
        ({"corrections": {}}, "cannot be read"),
    ],
)
def test_other_files_are_refused_in_a_sentence(change: dict[str, object], problem: str) -> None:
    value = json.loads(to_json(assumed(BOX), BOX)) | change
    with pytest.raises(InvalidRequest, match=problem) as refused:
        from_json(json.dumps(value), BOX)
    assert "--calibrate" in str(refused.value)
    with pytest.raises(InvalidRequest):
        from_json("not json", BOX)


def test_what_is_assumed_survives_its_file() -> None:
    assert from_json(to_json(assumed(BOX), BOX), BOX) == assumed(BOX)


def test_cards_are_known_by_name_and_told_rates_count() -> None:
    (known,) = assumed(BOX).gpus
    assert known.read_gbps == 1008.0
    told = replace(BOX, gpus=(replace(BOX.gpus[0], read_gbps=500.0, link_gbps=6.0),))
    assert (assumed(told).gpus[0].read_gbps, assumed(told).gpus[0].to_gbps) == (500.0, 6.0)
    strange = replace(BOX, gpus=(replace(BOX.gpus[0], name="a card of next year"),))
    assert 0 < assumed(strange).gpus[0].read_gbps < known.read_gbps


def test_threads_share_what_a_node_reads() -> None:
    node = NodeRates(((1, 20.0), (4, 60.0), (8, 70.0)))
    assert [node.read(n) for n in (1, 2, 4, 6, 8, 64)] == [20.0, pytest.approx(33.33, abs=0.01), 60.0, 65.0, 70.0, 70.0]
    assert NodeRates(((8, 70.0),), sold_gbps=100.0).limit == 100.0 and node.limit == 70.0


@pytest.mark.parametrize("phase", ("decode", "prefill"))
def test_a_measured_step_moves_the_prediction_towards_it(phase: str) -> None:
    planner = Planner(outline(), OPTIONS, BOX)
    for device, kind in ((Numa(0), "cpu"), (Gpu(0), "gpu")):
        placement = planner.move(planner.default(), (unit for unit, _ in planner.default().units), device)
        predicted = getattr(planner.estimate(placement), f"{phase}_tok_s")
        rates, before = planner.calibration, abs(2.0 - 1.0)
        for _ in range(8):
            taught = Planner(planner, OPTIONS, BOX, rates)
            rates = taught.learned(placement, **{f"{phase}_tok_s": predicted / 2})  # type: ignore[arg-type]
            now = getattr(Planner(planner, OPTIONS, BOX, rates).estimate(placement), f"{phase}_tok_s") / (predicted / 2)
            assert abs(now - 1.0) <= before + 1e-9
            before = abs(now - 1.0)
        assert before < 0.15
        assert getattr(rates.corrections, f"{phase}_{kind}") > 1.5
        other = "gpu" if kind == "cpu" else "cpu"
        assert getattr(rates.corrections, f"{phase}_{other}") == pytest.approx(1.0, abs=0.2)
        assert planner.learned(placement) == planner.calibration


def test_a_slower_format_and_a_slower_link_make_a_slower_prediction() -> None:
    planner = Planner(outline(), OPTIONS, BOX)
    cpu = planner.move(planner.default(), (unit for unit, _ in planner.default().units), Numa(0))
    base = assumed(BOX)
    slow = replace(base.nodes[0], formats=tuple((name, FormatRates(0.01, 0.01, 0.01, 50.0)) for name in ("F16", "F32")))
    for field in ("decode_tok_s", "prefill_tok_s"):
        usual, slower = (
            getattr(Planner(planner, OPTIONS, BOX, rates).estimate(cpu), field) for rates in (base, replace(base, nodes=(slow,)))
        )
        assert slower < usual
    hybrid = planner.move(planner.default(), [unit for unit, _ in cpu.units if unit.kind == "experts"], Numa(0))
    narrow = replace(base, gpus=(GpuRates(1008.0, 140.0, 0.01, 0.01),))
    assert (
        Planner(planner, OPTIONS, BOX, narrow).estimate(hybrid).decode_tok_s
        < Planner(planner, OPTIONS, BOX, base).estimate(hybrid).decode_tok_s
    )
