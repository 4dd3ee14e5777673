"""What the application asks before anything is loaded: facts of a model, predictions of placements, moves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.api.heat import with_hottest
from engine.api.pure import (
    Device,
    Gpu,
    GpuInfo,
    Machine,
    ModelOutline,
    NodeInfo,
    Numa,
    Planner,
    UnitId,
    machine_fingerprint,
    read_outline,
)
from engine.api.values import LoadOptions
from engine.estimate.memory import Estimator
from engine.placement.placement import units_of
from tests.helpers.golden_models import MODELS, golden

GIB = 1 << 30
NODE = NodeInfo(0, "a processor", 64 * GIB, 64 * GIB, 16, 200.0)
CARD = GpuInfo(0, "RTX 4090", 24 * GIB, 24 * GIB)
BOX = Machine(64 * GIB, 64 * GIB, (CARD, replace(CARD, index=1)), nodes=(NODE,))
OPTIONS = LoadOptions(n_threads=2, n_ctx=256, prefill_chunk=64)


def outline(name: str) -> ModelOutline:
    return read_outline(str(golden(name).path))


@pytest.mark.parametrize("name", MODELS)
def test_every_unit_has_its_facts(name: str) -> None:
    one = outline(name)
    assert tuple(facts.unit for facts in one.units) == units_of(one.model.spec)
    assert len(one.layer_kinds) == one.n_layers == one.info.n_layers
    for facts in one.units:
        if facts.unit.kind in ("kv", "state"):
            assert not facts.nbytes and not facts.read_per_token
            continue
        assert facts.nbytes > 0 and facts.formats
        # A token reads a row of the embedding, its share of the experts, and of the rest at most all.
        share = facts.n_used / facts.n_experts if facts.n_experts else 1.0
        assert 0 < facts.read_per_token <= facts.nbytes * share + 1


@pytest.mark.parametrize("name", MODELS)
def test_bytes_by_colour_add_up_and_are_those_of_the_estimator(name: str) -> None:
    one = outline(name)
    planner = Planner(one, OPTIONS, BOX)
    placement = planner.default()
    found = planner.refine(placement)
    assert found.exact and planner.estimate(placement) == found
    spec, graph, tensors = one.model.spec, one.model.graph, one.model.file.tensors
    known = Estimator(spec, graph, tensors, OPTIONS, BOX).estimate(placement)
    assert [one.owners for one in found.devices] == list(known.devices)
    for there in found.devices:
        colours = (there.attention, there.ffn, there.experts, there.kv, there.buffers)
        assert min(colours) >= 0 and sum(colours) == there.used
    assert found.fits and found.decode_tok_s > 0 and found.prefill_tok_s > found.decode_tok_s
    assert found.bound_tok_s > found.decode_tok_s


def test_a_move_takes_caches_along_and_leaves_the_placement_as_it_was() -> None:
    planner = Planner(outline("qwen35moe"), OPTIONS, BOX)
    before = planner.move(planner.default(), (unit for unit, _ in planner.default().units), Numa(0))
    after = planner.move(before, (UnitId("mixer", 0), UnitId("experts", 1)), Gpu(1))
    moved = {unit for unit, where in after.units if where == Gpu(1)}
    assert moved == {UnitId("mixer", 0), UnitId("state", 0), UnitId("experts", 1)}
    assert before.devices == (Numa(0),)
    kv = next(unit for unit, _ in before.units if unit.kind == "kv")
    assert planner.move(before, (kv,), Gpu(0)).device_of(UnitId("mixer", kv.layer)) == Gpu(0)


@pytest.mark.parametrize("device", (Gpu(2), Numa(1)))
def test_devices_that_are_not_there_are_refused(device: Device) -> None:
    planner = Planner(outline("qwen3moe"), OPTIONS, BOX)
    assert "numa0, gpu0, gpu1" in planner.refusal(planner.default(), (UnitId("mixer", 0),), device)
    assert planner.refusal(planner.default(), (UnitId("mixer", 0),), Gpu(1)) == ""


def test_more_on_slower_memory_is_slower() -> None:
    planner = Planner(outline("qwen3moe"), OPTIONS, BOX)
    on_cpu = planner.move(planner.default(), (unit for unit, _ in planner.default().units), Numa(0))
    assert planner.unit_ms(UnitId("experts", 0), Numa(0)) > 0
    slow = replace(BOX, nodes=(replace(NODE, read_gbps=20.0),))
    there = Planner(outline("qwen3moe"), OPTIONS, slow)
    assert there.estimate(on_cpu).decode_tok_s < planner.estimate(on_cpu).decode_tok_s


def test_pools_of_experts_take_room_and_make_it_faster() -> None:
    """They are experts to whoever looks at a device; a unit that leaves takes the sense of its pool with it."""
    planner = Planner(outline("qwen3moe"), OPTIONS, BOX)
    everything = (unit for unit, _ in planner.default().units)
    home = planner.move(planner.move(planner.default(), everything, Numa(0)), [UnitId("ffn", layer) for layer in (0, 2)], Gpu(1))
    pooled = with_hottest(home, (0, 1, 2), np.arange(48).reshape(3, 16), 8)
    assert [(pool.layer, pool.gpu) for pool in pooled.pools] == [(0, Gpu(1)), (2, Gpu(1))]
    before, after = (planner.estimate(one).devices[-1] for one in (home, pooled))
    assert after.experts - before.experts == after.used - before.used - (after.buffers - before.buffers) > 0
    assert planner.estimate(pooled).devices[0].decode_ms < planner.estimate(home).devices[0].decode_ms
    assert [pool.layer for pool in planner.move(pooled, [UnitId("experts", 0)], Gpu(0)).pools] == [2]


def test_fingerprints_tell_machines_apart_but_not_what_is_free() -> None:
    assert machine_fingerprint(BOX) == machine_fingerprint(replace(BOX, ram_free=1))
    assert machine_fingerprint(BOX) != machine_fingerprint(replace(BOX, gpus=(CARD,)))
