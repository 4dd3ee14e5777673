"""Models over emulated GPUs: placements as texts, and what tests of them share. Skips where PyTorch is not installed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.arch.registry import build_spec
from engine.arch.spec import ModelSpec
from engine.arch.units import UnitId
from engine.gguf.reader import read_gguf
from engine.placement.file import to_json
from engine.placement.options import LoadOptions
from engine.placement.placement import Device, Gpu, Numa, default_placement
from engine.runtime.loader import LoadedModel
from tests.helpers.runs import Change, open_model, same

EXACT = LoadOptions(n_threads=1, f32_activations=True, k_type="f32", v_type="f32")
CPU, GPU, SECOND = Numa(0), Gpu(0), Gpu(1)

Where = Callable[[UnitId, ModelSpec], Device]


def need_torch() -> None:
    """Skips without PyTorch, and keeps it from taking every core."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; pip install 'layerdeck[gpu]'")
    torch.set_num_threads(1)


def on_cpu(unit: UnitId, spec: ModelSpec) -> Device:
    """Everything in the machine's memory."""
    return CPU


def whole(unit: UnitId, spec: ModelSpec) -> Device:
    """Everything on one GPU."""
    return GPU


def hybrid(unit: UnitId, spec: ModelSpec) -> Device:
    """Experts on the CPU; in models without experts the feed-forward networks of all layers."""
    moe = any(hasattr(block.ffn, "n_experts") for block in spec.blocks)
    return CPU if unit.kind == ("experts" if moe else "ffn") else GPU


def split(unit: UnitId, spec: ModelSpec) -> Device:
    """The first half of the layers on one GPU, the rest on another."""
    return GPU if unit.kind != "head" and unit.layer < spec.n_layers // 2 else SECOND


def anywhere(seed: int) -> Where:
    """Each unit anywhere, a cache with its mixer."""

    def where(unit: UnitId, spec: ModelSpec) -> Device:
        kind = "mixer" if unit.kind in ("kv", "state") else unit.kind
        return random.Random(f"{seed} {kind} {unit.layer}").choice((CPU, GPU, SECOND))

    return where


def placed(path: Path, where: Where, options: LoadOptions = EXACT, change: Change = same) -> LoadOptions:
    """Options that place the model so."""
    spec = change(build_spec(read_gguf(path)))
    usual = default_placement(spec, options)
    units = tuple((unit, where(unit, spec)) for unit, _ in usual.units)
    return replace(options, placement=to_json(replace(usual, units=units), spec))


def open_placed(path: Path, where: Where, options: LoadOptions = EXACT, change: Change = same) -> LoadedModel:
    """The model, placed so."""
    return open_model(path, placed(path, where, options, change), change)
