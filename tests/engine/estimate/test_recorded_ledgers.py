"""Estimates against ledgers that an H200 had once prompts had run (tests/bench/results), by purpose, from headers alone."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine.api.pure import Gpu, ModelOutline, Planner, read_outline
from engine.estimate.memory import LIBRARY_BYTES, DeviceBytes
from engine.hardware.gpus import GpuInfo
from engine.hardware.machine import Machine
from engine.placement.options import LoadOptions
from engine.placement.source import resolve_source
from tests.bench.synthetic import write_header

MIB = 1 << 20
RESULTS = Path(__file__).parents[2] / "bench" / "results"
H200 = Machine(128 << 30, 128 << 30, (GpuInfo(0, "H200", 139 << 30, 139 << 30),))
LESS, MORE = 2 * MIB, 24 * MIB
"""By how much an estimate may be under and over the ledger."""
TOTAL = 150 * MIB
EXPERTS_ON_CPU = "-ngl 99 -ot exps=CPU"
WHOLE = {
    "8b": ("qwen3-8b", "-ngl 99", 2048, 512),
    "30b": ("qwen3-30b-a3b", "-ngl 99", 2048, 512),
    "30b-hybrid": ("qwen3-30b-a3b", EXPERTS_ON_CPU, 2048, 512),
    "30b-hybrid-2048": ("qwen3-30b-a3b", EXPERTS_ON_CPU, 2176, 2048),
    "dsv2lite": ("deepseek-v2-lite", "-ngl 99", 2048, 512),
}
"""Model, flags, context and chunk of sections of tests/bench/gpu.py."""


def _recorded(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


ROWS = _recorded("gpu_placements.json")["speed"]["rows"]


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("headers")


@cache
def outline(kind: str, layers: int | None, folder: Path) -> ModelOutline:
    return read_outline(str(write_header(kind, folder / f"{kind}-{layers}.gguf", layers)))


def estimates(model: ModelOutline, flags: str, n_ctx: int, chunk: int) -> tuple[DeviceBytes, DeviceBytes, int]:
    """Of the card: from lowered plans, of the interactive planner, and what its allocator loses."""
    options = LoadOptions(n_threads=14, n_ctx=n_ctx, prefill_chunk=chunk)
    planner, parts = Planner(model, options, H200), model.model
    placement = resolve_source(flags, parts.spec, parts.graph, parts.file, H200.gpus, options).placement
    quick = planner.estimate(placement).of(Gpu(0)).owners
    lost = planner.estimator.lost_on_gpus(placement)[Gpu(0)]
    return planner.refine(placement).of(Gpu(0)).owners, quick, planner.estimator.context_bytes + LIBRARY_BYTES + lost


def check_by_purpose(found: DeviceBytes, beside: int, held: dict[str, int]) -> None:
    """beside: what no ledger has."""
    ours = {"weights": found.weights, "derived": found.derived, "kv": found.kv + found.kept_windows}
    ours["workspace"] = found.workspace + found.other - beside
    for purpose, nbytes in ours.items():
        off = nbytes - held[f"gpu0 {purpose}"]
        assert -LESS <= off <= MORE, f"{purpose}: {off / MIB:+.1f} MiB"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['model']} {row['flags']}")
def test_a_recorded_ledger_is_what_is_estimated(headers: Path, row: dict[str, Any]) -> None:
    kind, layers, _ = row["model"].split()
    refined, quick, beside = estimates(outline(kind, int(layers), headers), row["flags"], 2048, 512)
    for found in (refined, quick):
        check_by_purpose(found, beside, row["held"])
        assert 0 <= found.used - row["bytes"]["real"] <= TOTAL  # never less than was taken of the card


@pytest.mark.parametrize("section", WHOLE)
def test_whole_models_and_long_chunks_take_what_is_estimated(headers: Path, section: str) -> None:
    kind, flags, n_ctx, chunk = WHOLE[section]
    refined, quick, beside = estimates(outline(kind, None, headers), flags, n_ctx, chunk)
    for recorded in _recorded("gpu.json")["models"][section]:
        for found in (refined, quick):
            check_by_purpose(found, beside, recorded["memory"])
