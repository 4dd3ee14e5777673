"""Estimated bytes of GPUs against the ledger of emulated ones."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from engine.arch.units import UnitId
from engine.estimate.memory import Estimator
from engine.hardware.gpus import GpuInfo
from engine.hardware.machine import Machine, this_machine
from engine.placement.file import to_json
from engine.placement.options import LoadOptions
from engine.placement.placement import Gpu, Numa, default_placement
from engine.placement.source import resolve_source
from engine.placement.streaming import CHUNK_BYTES, CHUNKS
from engine.runtime.loader import load
from kernels_pyx.executor import AbortFlag
from tests.helpers.described import Described, described, model
from tests.helpers.golden_models import MODELS, golden
from tests.helpers.models import need_goldens
from tests.helpers.pooled import pooled

pytest.importorskip("torch", reason="emulated GPUs need torch")

F16 = LoadOptions(n_threads=2, n_ctx=300, prefill_chunk=64)
BITS_8 = replace(F16, k_type="q8_0", v_type="int8")


@pytest.mark.parametrize(
    "options",
    [
        replace(F16, placement="-ngl 99"),
        replace(F16, placement="-ngl 99 -ts 1,1 -ot exps=CPU"),
        replace(BITS_8, placement="-ngl 2"),
        replace(F16, placement="-ngl 99 -ts 1,1 -ot exps=CPU", stream_experts="on"),
    ],
    ids=lambda options: f"{options.placement} {options.stream_experts}",
)
@pytest.mark.parametrize("name", MODELS)
def test_bytes_are_those_of_the_ledger(monkeypatch: pytest.MonkeyPatch, name: str, options: LoadOptions) -> None:
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")
    check_against_the_ledger(model(name), options)


@pytest.mark.parametrize("name", ["q256-qwen3.Q6_K", "q256-qwen3moe.Q6_K", "q256-qwen35moe.Q4_K_M-mix"])
@pytest.mark.parametrize("stream", ["off", "on"])
def test_blocks_that_are_padded_are_counted_so(monkeypatch: pytest.MonkeyPatch, name: str, stream: str) -> None:
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")
    one = described(need_goldens("quant") / f"{name}.gguf")
    placement = "-ngl 99 -ts 1,1 -ot exps=CPU" if stream == "on" else "-ngl 99"
    check_against_the_ledger(one, replace(F16, placement=placement, stream_experts=stream))


@pytest.mark.parametrize("seed", range(12))
def test_bytes_of_random_placements_are_those_of_the_ledger(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:3")
    rng = random.Random(seed)
    one = model(rng.choice(("qwen3moe", "qwen35moe", "deepseek2-v3-legacy-kv_b", "gpt-oss", "glm4moe")))
    whole, devices = default_placement(one.spec, F16), (Numa(0), Gpu(0), Gpu(1), Gpu(2))
    drawn = {unit: rng.choice(devices) for unit, _ in whole.units}
    units = tuple(
        (unit, drawn[UnitId("mixer", unit.layer)] if unit.kind in ("kv", "state") else where) for unit, where in drawn.items()
    )
    text = to_json(replace(whole, units=units), one.spec)
    check_against_the_ledger(one, replace(rng.choice((F16, BITS_8)), placement=text))


@pytest.mark.parametrize("name", ["qwen3moe", "gpt-oss", "deepseek2-v3", "qwen35moe-fused-gate_up"])
def test_pools_of_experts_are_counted(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")
    check_against_the_ledger(model(name), pooled(golden(name).path, 2, options=F16))


def test_padded_blocks_in_pools_are_counted_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")
    path = need_goldens("quant") / "q256-qwen3moe.Q6_K.gguf"
    check_against_the_ledger(described(path), pooled(path, 2, options=F16))


def check_against_the_ledger(one: Described, options: LoadOptions) -> None:
    machine = this_machine()
    placement = resolve_source(options.placement, *one, machine.gpus, options).placement
    estimator = Estimator(one.spec, one.graph, one.file.tensors, options, machine)
    estimate, lost = estimator.estimate(placement), estimator.lost_on_gpus(placement)
    loaded = load(one.file, one.spec, one.graph, options, lambda phase, done, total: None, AbortFlag())
    holdings = loaded.residency.holdings
    loaded.close()
    for there in estimate.devices:
        held = {holding.owner: holding.nbytes for holding in holdings if holding.device == there.device}
        assert there.weights == held.get("weights", 0)
        assert there.kv == held.get("kv", 0)
        assert there.kept_windows == held.get("kept windows", 0)
        assert there.state == held.get("state", 0)
        # What only prompts need is derived with the first of them.
        assert there.derived * 0.5 <= held.get("derived", 0) <= there.derived
        # What the allocator rounds up is on nobody's account.
        beside = there.workspace + there.other - lost.get(there.device, 0)
        assert abs(beside - held.get("workspace", 0)) < 8 << 20


def test_the_ring_for_experts_on_their_way_is_counted_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")
    one = model("qwen3moe")
    figures: list[list[int]] = []
    for mode in ("off", "on"):
        options = replace(F16, placement="-ngl 99 -ts 1,1 -ot exps=CPU", stream_experts=mode)  # type: ignore[arg-type]
        machine = this_machine()
        placement = resolve_source(options.placement, *one, machine.gpus, options).placement
        estimate = Estimator(one.spec, one.graph, one.file.tensors, options, machine).estimate(placement)
        loaded = load(one.file, one.spec, one.graph, options, lambda phase, done, total: None, AbortFlag())
        for device in (Numa(0), Gpu(0), Gpu(1)):
            held = sum(h.nbytes for h in loaded.residency.holdings if (h.device, h.owner) == (device, "workspace"))
            figures.append([estimate.of(device).workspace, held])
        loaded.close()
    for off, on in zip(figures[:3], figures[3:], strict=True):
        counted, held = on[0] - off[0], on[1] - off[1]
        assert counted > 0 and abs(counted - held) < 64 << 10
    pinned = 2 * CHUNKS * CHUNK_BYTES
    assert pinned <= figures[3][0] - figures[0][0] < pinned + (1 << 20)


def test_where_the_ring_does_not_fit_the_estimate_is_without_it() -> None:
    one = model("qwen3moe")
    options = replace(F16, placement="-ngl 99 -ot exps=CPU", stream_experts="on")
    roomy = Machine(64 << 30, 64 << 30, (GpuInfo(0, "a", 1 << 40, 1 << 40),))
    placement = resolve_source(options.placement, *one, roomy.gpus, options).placement
    with_ring = Estimator(one.spec, one.graph, one.file.tensors, options, roomy).estimate(placement).of(Gpu(0)).used
    full = replace(roomy, gpus=(GpuInfo(0, "a", 1 << 40, with_ring - 1),))
    without = Estimator(one.spec, one.graph, one.file.tensors, options, full).estimate(placement)
    assert without.fits and without.of(Gpu(0)).used < with_ring
    off = replace(options, stream_experts="off")
    assert (
        without.of(Gpu(0)).used == Estimator(one.spec, one.graph, one.file.tensors, off, full).estimate(placement).of(Gpu(0)).used
    )
