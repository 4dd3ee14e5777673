"""Placements that are said to fit do: loaded on emulated GPUs that have exactly as much as was predicted, counted as torch's
allocator counts, and run. `LAYERDECK_CAPACITY_TRIALS` says how many are drawn."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from engine.arch.units import UnitId
from engine.estimate import rounding
from engine.estimate.automatic import moved
from engine.estimate.memory import Estimator
from engine.estimate.quick import QuickBytes
from engine.hardware.machine import Machine, this_machine
from engine.placement.file import to_json
from engine.placement.options import LoadOptions
from engine.placement.placement import Gpu, Numa, default_placement, units_of
from tests.helpers.described import Described, described, model
from tests.helpers.golden_models import batch, golden
from tests.helpers.models import need_included_model
from tests.helpers.placed import need_torch
from tests.helpers.runs import open_model

TRIALS = int(os.environ.get("LAYERDECK_CAPACITY_TRIALS", "24"))
NAMES = ("qwen3moe", "qwen35moe", "deepseek2-v3", "gpt-oss", "gemma3", "llama-gqa-rope3", "glm4moe", "qwen3next")
OPTIONS = LoadOptions(n_threads=1, n_ctx=256, prefill_chunk=64)
GIB = 1 << 30


def test_the_allocator_is_counted_as_the_ledger_counts_it() -> None:
    need_torch()
    from engine.runtime import gpu

    assert (gpu.SMALL_BYTES, gpu.SMALL_ROUND, gpu.SEGMENT) == (rounding.SMALL_BYTES, rounding.SMALL_ROUND, rounding.SEGMENT)
    ledger, sizes = gpu.Ledger(), (1, 513, 1 << 20, (1 << 20) + 1, 5 << 20)
    import torch

    held = [torch.empty(nbytes, dtype=torch.uint8) for nbytes in sizes]
    for tensor in held:
        ledger.take(tensor)
    found = rounding.pieces(sizes)
    small = -(-found.small // rounding.SEGMENT) * rounding.SEGMENT - found.asked
    assert ledger.nbytes == sum(sizes) + found.lost + small


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(TRIALS))
def test_what_is_said_to_fit_is_loaded_and_runs(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    need_torch()
    rng = random.Random(seed)
    if seed % 8 == 7:
        path = Path(need_included_model())
        one = described(path)
    else:
        name = rng.choice(NAMES)
        path, one = golden(name).path, model(name)
    options = replace(OPTIONS, k_type=rng.choice(("f16", "q8_0", "f32")), n_ctx=rng.choice((128, 256)))
    if rng.random() < 0.3:
        options = replace(options, stream_experts="on")
    devices = (Numa(0), Gpu(0), Gpu(1))
    drawn = {unit: rng.choice(devices) for unit in units_of(one.spec)}
    places = {unit: drawn[UnitId("mixer", unit.layer)] if unit.kind in ("kv", "state") else drawn[unit] for unit in drawn}
    placement = moved(default_placement(one.spec, options), places)
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")
    roomy = this_machine()
    needed = max(one.used for one in estimator(one, options, roomy).estimate(placement).devices if isinstance(one.device, Gpu))
    if not needed:
        return
    if not estimator(one, options, roomy).lost_on_gpus(placement):  # tiny: all that rounding may take is not counted
        needed += 2 * rounding.SEGMENT
    monkeypatch.setenv("LAYERDECK_GPU", f"emulate:2x{needed / GIB:.9f}")
    there = this_machine()
    found = QuickBytes(one.spec, estimator(one, options, there)).refine(placement)
    assert all(abs(one.capacity - needed) < 16 for one in found.devices if isinstance(one.device, Gpu))
    loaded = open_model(path, replace(options, placement=to_json(placement, one.spec)))
    try:
        loaded.step(batch(list(range(1, 33)), 0, 1))
        loaded.step(batch([3], 32))
    finally:
        loaded.close()


def estimator(one: Described, options: LoadOptions, machine: Machine) -> Estimator:
    return Estimator(one.spec, one.graph, one.file.tensors, options, machine)
