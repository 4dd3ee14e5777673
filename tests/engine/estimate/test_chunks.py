"""Chunks of prompts grow where experts come over a bus and where there is room, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from engine.api.pure import Planner, read_outline
from engine.estimate.chunks import LONGER, with_longer_chunk
from engine.estimate.memory import Estimator
from engine.hardware.gpus import GpuInfo
from engine.hardware.machine import Machine
from engine.placement.options import LoadOptions
from engine.placement.placement import Gpu, Numa, Placement
from engine.placement.source import resolve_source
from tests.helpers.described import model
from tests.helpers.golden_models import golden

OPTIONS = LoadOptions(n_threads=2, n_ctx=4096, placement="-ngl 99 -ot exps=CPU", grow_chunk=True)
ROOMY = Machine(64 << 30, 64 << 30, (GpuInfo(0, "a", 1 << 40, 1 << 40),))


def placed(options: LoadOptions, name: str = "qwen3moe", machine: Machine = ROOMY) -> tuple[LoadOptions, Placement]:
    """What becomes of the options on that machine, and the placement."""
    one = model(name)
    placement = resolve_source(options.placement, *one, machine.gpus, options).placement
    made = partial(Estimator, one.spec, one.graph, one.file.tensors)
    return with_longer_chunk(options, placement, lambda tried: made(tried, machine)), placement


def test_the_longest_chunk_that_fits_is_taken() -> None:
    assert placed(OPTIONS)[0] == replace(OPTIONS, grow_chunk=False, prefill_chunk=max(LONGER))
    one, (_, placement) = model("qwen3moe"), placed(OPTIONS)
    used = {}
    for rows in (512, *LONGER):
        options = replace(OPTIONS, grow_chunk=False, prefill_chunk=rows)
        used[rows] = Estimator(one.spec, one.graph, one.file.tensors, options, ROOMY).estimate(placement).of(Gpu(0)).used
    assert used[512] < used[1024] < used[2048]
    for rows in LONGER:
        tight = replace(ROOMY, gpus=(GpuInfo(0, "a", 1 << 40, used[rows]),))
        assert placed(OPTIONS, machine=tight)[0].prefill_chunk == rows
    full = replace(ROOMY, gpus=(GpuInfo(0, "a", 1 << 40, used[1024] - 1),))
    assert placed(OPTIONS, machine=full)[0].prefill_chunk == 512


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"grow_chunk": False}, "qwen3moe"),
        ({"placement": "-ngl 99"}, "qwen3moe"),
        ({"placement": "-ngl 0"}, "qwen3moe"),
        ({"stream_experts": "off"}, "qwen3moe"),
        ({"n_ctx": 1000}, "qwen3moe"),
        ({}, "qwen3"),
    ],
)
def test_chunks_stay_as_they_are(changed: dict[str, object], name: str) -> None:
    """Where nobody leaves it open, where nothing is brought, and where no prompt is so long."""
    options = replace(OPTIONS, **changed)  # type: ignore[arg-type]
    assert placed(options, name)[0] == replace(options, grow_chunk=False)


def test_the_planner_counts_the_chunk_that_loading_takes() -> None:
    outline, (chosen, placement) = read_outline(str(golden("qwen3moe").path)), placed(OPTIONS)
    usual = replace(OPTIONS, grow_chunk=False)
    long, short = (Planner(outline, options, ROOMY).refine(placement) for options in (chosen, usual))
    planner = Planner(outline, OPTIONS, ROOMY)
    planner.prepare(placement)
    quick = planner.estimate(placement)
    assert abs(quick.of(Gpu(0)).used - long.of(Gpu(0)).used) < long.of(Gpu(0)).used - short.of(Gpu(0)).used
    assert planner.refine(placement) == long == planner.estimate(placement)
    assert long.prefill_tok_s > short.prefill_tok_s and long.of(Gpu(0)).used > short.of(Gpu(0)).used
    # Where a longer one would be over, and where all is in memory, the usual one.
    full = replace(ROOMY, gpus=(GpuInfo(0, "a", 1 << 40, short.of(Gpu(0)).used),))
    assert Planner(outline, OPTIONS, full).refine(placement) == Planner(outline, usual, full).refine(placement)
    home = planner.move(placement, [unit for unit, _ in placement.units], Numa(0))
    assert planner.refine(home) == Planner(outline, usual, ROOMY).refine(home)


def test_what_is_learned_of_prompts_is_of_the_chunk_that_was_loaded() -> None:
    outline, (chosen, placement) = read_outline(str(golden("qwen3moe").path)), placed(OPTIONS)
    loaded, planner = Planner(outline, chosen, ROOMY), Planner(outline, OPTIONS, ROOMY)
    rate = 0.5 * loaded.estimate(placement).prefill_tok_s
    assert planner.learned(placement, prefill_tok_s=rate) == loaded.learned(placement, prefill_tok_s=rate)
