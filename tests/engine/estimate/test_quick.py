"""Quick estimates against the full arithmetic on random and on usual placements, and how quick they are."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from engine.arch.spec import MoeFfn
from engine.arch.units import UnitId
from engine.estimate.automatic import moved
from engine.estimate.memory import DeviceBytes, Estimator
from engine.estimate.quick import QuickBytes
from engine.hardware.gpus import GpuInfo
from engine.hardware.machine import Machine, NodeInfo
from engine.placement.options import LoadOptions
from engine.placement.placement import Device, Gpu, Numa, Placement, Pool, default_placement, units_of
from engine.placement.pools import with_sensible_pools
from tests.helpers.described import Described, model
from tests.helpers.golden_models import MODELS
from tests.helpers.pooled import with_pools

GIB = 1 << 30
NODES = tuple(NodeInfo(i, "a processor", 32 * GIB, 32 * GIB, 8) for i in range(2))
CARDS = tuple(GpuInfo(i, "a card", 24 * GIB, 24 * GIB) for i in range(3))
BOX = Machine(64 * GIB, 64 * GIB, CARDS, nodes=NODES)
DEVICES: tuple[Device, ...] = (Numa(0), Numa(1), Gpu(0), Gpu(1), Gpu(2))
OPTIONS = LoadOptions(n_threads=2, n_ctx=300, prefill_chunk=64)
KINDS = (
    OPTIONS,
    replace(OPTIONS, k_type="q8_0", v_type="int8", stream_experts="on"),
    replace(OPTIONS, k_type="f32", v_type="f32", f32_activations=True, stream_experts="off"),
)


def scattered(one: Described, rng: random.Random, devices: tuple[Device, ...] = DEVICES) -> Placement:
    """Every unit anywhere, caches and states with their mixer."""
    drawn = {unit: rng.choice(devices) for unit in units_of(one.spec)}
    places = {unit: drawn[UnitId("mixer", unit.layer)] if unit.kind in ("kv", "state") else drawn[unit] for unit in drawn}
    return pooled(moved(default_placement(one.spec, OPTIONS), places), one, rng)


def pooled(placement: Placement, one: Described, rng: random.Random) -> Placement:
    """With pools of a few experts in some of the layers that can have one."""
    found = []
    for block in one.spec.blocks:
        router = placement.device_of(UnitId("ffn", block.index))
        if isinstance(block.ffn, MoeFfn) and isinstance(router, Gpu) and rng.random() < 0.5:
            found.append(Pool(block.index, router, tuple(range(rng.randrange(1, block.ffn.n_experts)))))
    return with_sensible_pools(replace(placement, pools=tuple(found)))


def by_layers(one: Described, rng: random.Random) -> Placement:
    """Layers in order over the GPUs, some of their experts and the embedding on the CPU."""
    cuts = sorted(rng.randrange(one.spec.n_layers + 1) for _ in range(2))
    places: dict[UnitId, Device] = {}
    for unit in units_of(one.spec):
        behind = unit.kind == "embed" or (unit.kind == "experts" and rng.random() < 0.6)
        places[unit] = Numa(0) if behind else Gpu(sum(unit.layer >= cut for cut in cuts))
    return pooled(moved(default_placement(one.spec, OPTIONS), places), one, rng)


def sure(one: DeviceBytes) -> tuple[int, ...]:
    """Everything but working memory."""
    return one.weights, one.derived, one.kv, one.kept_windows, one.state, one.other, one.capacity


@pytest.mark.parametrize("options", KINDS, ids=("default", "8-bit", "exact"))
@pytest.mark.parametrize("name", MODELS)
def test_all_but_working_memory_is_that_of_the_full_arithmetic(name: str, options: LoadOptions) -> None:
    one, rng = model(name), random.Random(name)
    full = Estimator(one.spec, one.graph, one.file.tensors, options, BOX)
    quick = QuickBytes(one.spec, full)
    for make in (scattered, by_layers, scattered):
        placement = make(one, rng)
        known, (found, exact) = full.estimate(placement), quick.estimate(placement)
        assert not exact
        assert [sure(there) for there in found.devices] == [sure(there) for there in known.devices]
        row = 4 * one.spec.n_embd * full.largest_chunk
        for ours, theirs in zip(found.devices, known.devices, strict=True):
            # Rows that stay beyond their layer, and what hardly counts.
            assert abs(ours.workspace - theirs.workspace) <= 6 * row + (64 << 10)
        assert quick.refine(placement) == known
        assert quick.estimate(placement) == (known, True)


@pytest.mark.parametrize("name", ("qwen3moe", "qwen35moe", "deepseek2-v3", "gpt-oss", "glm4moe"))
def test_pools_of_experts_are_part_of_it(name: str) -> None:
    one, rng = model(name), random.Random(name)
    full = Estimator(one.spec, one.graph, one.file.tensors, OPTIONS, BOX)
    quick = QuickBytes(one.spec, full)
    plain = replace(by_layers(one, rng), pools=())
    placement = with_pools(plain, one.spec, 3)
    assert placement.pools
    known, (found, _), (without, _) = full.estimate(placement), quick.estimate(placement), quick.estimate(plain)
    assert [sure(there) for there in found.devices] == [sure(there) for there in known.devices]
    assert sum(there.weights for there in found.devices) > sum(there.weights for there in without.devices)
    row = 4 * one.spec.n_embd * full.largest_chunk
    for ours, theirs in zip(found.devices, known.devices, strict=True):
        assert abs(ours.workspace - theirs.workspace) <= 6 * row + (64 << 10)


@pytest.mark.parametrize("name", ("qwen3moe", "qwen35moe", "deepseek2-v3", "gpt-oss", "glm4moe"))
def test_usual_placements_are_hardly_underestimated(name: str) -> None:
    one, rng = model(name), random.Random(name)
    full = Estimator(one.spec, one.graph, one.file.tensors, OPTIONS, BOX)
    quick = QuickBytes(one.spec, full)
    row = 4 * one.spec.n_embd * full.largest_chunk
    for _ in range(6):
        placement = by_layers(one, rng)
        for ours, theirs in zip(quick.estimate(placement)[0].devices, full.estimate(placement).devices, strict=True):
            assert ours.workspace >= theirs.workspace - row
