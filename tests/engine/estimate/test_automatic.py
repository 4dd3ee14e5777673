"""The automatic choice of places, and the moves that make room: both as estimates judge them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.arch.units import UnitId
from engine.errors import OutOfDeviceMemory
from engine.estimate.automatic import automatic_placement, moved, roomy
from engine.estimate.memory import Estimator
from engine.estimate.moves import find_move, with_move
from engine.hardware.gpus import GpuInfo
from engine.hardware.machine import Machine
from engine.placement.options import LoadOptions
from engine.placement.placement import Gpu, Numa, Placement, default_placement, units_of
from tests.helpers.described import Described, model
from tests.helpers.golden_models import MODELS

GIB = 1 << 30
OPTIONS = LoadOptions(n_threads=2, n_ctx=256, prefill_chunk=64)


def machine(*capacities: int, ram: int = 64 * GIB) -> Machine:
    """GPUs without a context of their own, so that tiny models fill tiny ones."""
    return Machine(ram, ram, tuple(GpuInfo(i, "card", nbytes, nbytes, emulated=True) for i, nbytes in enumerate(capacities)))


def chosen(one: Described, there: Machine, options: LoadOptions = OPTIONS) -> tuple[Placement, Estimator]:
    estimator = Estimator(one.spec, one.graph, one.file.tensors, options, there)
    return automatic_placement(one.spec, estimator, options), estimator


def on(placement: Placement, kind: str) -> list[str]:
    return [str(where) for unit, where in placement.units if unit.kind == kind]


@pytest.mark.parametrize("name", MODELS)
def test_everything_but_the_embedding_goes_to_a_gpu_that_holds_it(name: str) -> None:
    one = model(name)
    placement, _ = chosen(one, machine(24 * GIB))
    assert {where for unit, where in placement.units if unit.kind != "embed"} == {Gpu(0)}
    assert placement.device_of(UnitId("embed")) == Numa(0)


def test_a_model_that_fits_on_one_gpu_is_not_spread() -> None:
    placement, _ = chosen(model("qwen3moe"), machine(24 * GIB, 24 * GIB))
    assert placement.devices == (Numa(0), Gpu(0))


def test_without_gpus_everything_is_on_the_cpu() -> None:
    one = model("qwen3moe")
    assert chosen(one, machine())[0] == default_placement(one.spec, OPTIONS)
    assert chosen(one, machine(1 << 16))[0] == default_placement(one.spec, OPTIONS)


@pytest.mark.parametrize("name", ("qwen3moe", "deepseek2-v3", "qwen35moe", "gpt-oss", "llama-mha-spm", "gemma3"))
def test_what_is_chosen_fits_and_experts_stay_behind_first(name: str) -> None:
    one = model(name)
    whole = chosen(one, machine(24 * GIB))
    needed = whole[1].estimate(whole[0]).of(Gpu(0)).used
    before = -1
    for tenth in range(1, 12):
        placement, estimator = chosen(one, machine(needed * tenth // 10))
        estimate = estimator.estimate(placement)
        assert roomy(estimate) and not estimate.of(Gpu(0)).over
        layers, experts = on(placement, "mixer").count("gpu0"), on(placement, "experts").count("gpu0")
        assert layers == one.spec.n_layers or not experts
        assert layers + experts >= before
        before = layers + experts
        # The last layers are the first to go.
        assert on(placement, "mixer") == ["numa0"] * (one.spec.n_layers - layers) + ["gpu0"] * layers


def test_two_gpus_take_layers_in_order_by_their_memory() -> None:
    one = model("llama-mha-spm")
    used = chosen(one, machine(24 * GIB))[1].estimate(chosen(one, machine(24 * GIB))[0]).of(Gpu(0)).used
    placement, estimator = chosen(one, machine(used, used))
    layers = on(placement, "mixer") + on(placement, "head")
    assert set(layers) == {"gpu0", "gpu1"} and layers == sorted(layers)
    assert roomy(estimator.estimate(placement))


def test_formats_without_gpu_kernels_stay_on_the_cpu() -> None:
    one = model("qwen3moe")
    tensors = dict(one.file.tensors)
    name = "blk.1.ffn_up_exps.weight"
    tensors[name] = replace(tensors[name], type_id=18, type_name="IQ3_XXS")
    estimator = Estimator(one.spec, one.graph, tensors, OPTIONS, machine(24 * GIB))
    assert estimator.without_gpu_kernels() == {UnitId("experts", 1)}


def all_on_gpu(one: Described) -> Placement:
    home = default_placement(one.spec, OPTIONS)
    return moved(home, dict.fromkeys(units_of(one.spec), Gpu(0)))


def test_experts_of_the_last_layers_are_the_first_to_move() -> None:
    one = model("qwen3moe")
    estimator = Estimator(one.spec, one.graph, one.file.tensors, OPTIONS, machine(24 * GIB))
    sizes = estimator.unit_bytes(all_on_gpu(one))
    last = one.spec.n_layers - 1
    move = find_move(estimator, all_on_gpu(one), Gpu(0), sizes[UnitId("experts", last)] // 2)
    assert move is not None and move.sentence == f"move the experts of layer {last} to the CPU"
    assert move.placement.device_of(UnitId("experts", last)) == Numa(0)
    more = find_move(estimator, all_on_gpu(one), Gpu(0), sizes[UnitId("experts", last)] * 3 // 2)
    assert more is not None and more.sentence == f"move the experts of layers {last - 1}-{last} to the CPU"


def test_whole_layers_move_where_experts_are_not_enough_or_there_are_none() -> None:
    one = model("llama-mha-spm")
    estimator = Estimator(one.spec, one.graph, one.file.tensors, OPTIONS, machine(24 * GIB))
    move = find_move(estimator, all_on_gpu(one), Gpu(0), 1000)
    assert move is not None and move.sentence == "move layer 0 to the CPU"
    assert {where for unit, where in move.placement.units if unit.layer == 0} == {Numa(0)}


def test_a_move_frees_what_is_missing_and_fills_nothing_else() -> None:
    one = model("deepseek2-v3")
    placement = all_on_gpu(one)
    estimator = Estimator(one.spec, one.graph, one.file.tensors, OPTIONS, machine(24 * GIB, 24 * GIB, ram=1 << 20))
    before = estimator.estimate(placement).of(Gpu(0)).used
    for missing in (1, 10_000, 100_000, 300_000):
        move = find_move(estimator, placement, Gpu(0), missing)
        assert move is not None
        after = estimator.estimate(move.placement)
        assert before - after.of(Gpu(0)).used >= missing
        assert not after.of(Gpu(1)).over
    assert find_move(estimator, placement, Gpu(0), 1 << 40) is None


def test_another_gpu_takes_what_the_machine_has_no_room_for() -> None:
    one = model("qwen3moe")
    estimator = Estimator(one.spec, one.graph, one.file.tensors, OPTIONS, machine(24 * GIB, 24 * GIB, ram=1 << 12))
    move = find_move(estimator, all_on_gpu(one), Gpu(0), 1000)
    assert move is not None and move.sentence.endswith("to gpu1")


def test_what_is_held_stays_and_its_cache_with_it() -> None:
    one = model("qwen3moe")
    estimator = Estimator(one.spec, one.graph, one.file.tensors, OPTIONS, machine(24 * GIB))
    last = one.spec.n_layers - 1
    move = find_move(estimator, all_on_gpu(one), Gpu(0), 1000, held={UnitId("experts", last)})
    assert move is not None and move.sentence == f"move the experts of layer {last - 1} to the CPU"
    dense = model("llama-mha-spm")
    estimator = Estimator(dense.spec, dense.graph, dense.file.tensors, OPTIONS, machine(24 * GIB))
    move = find_move(estimator, all_on_gpu(dense), Gpu(0), 1000, held={UnitId("mixer", 0)})
    assert move is not None and move.sentence == "move layer 1 to the CPU"
    assert move.placement.device_of(UnitId("kv", 0)) == move.placement.device_of(UnitId("mixer", 0)) == Gpu(0)
    assert find_move(estimator, all_on_gpu(dense), Gpu(0), 1000, held=units_of(dense.spec)) is None


@pytest.mark.parametrize("name", ["qwen3moe", "llama-mha-spm"])
def test_everything_leaves_a_card_that_is_gone(name: str) -> None:
    one = model(name)
    estimator = Estimator(one.spec, one.graph, one.file.tensors, OPTIONS, machine(24 * GIB))
    placement = moved(all_on_gpu(one), dict.fromkeys(units_of(one.spec), Gpu(1)))
    gone = estimator.estimate(placement).of(Gpu(1))
    assert gone.over == gone.used > 0
    move = find_move(estimator, placement, Gpu(1), gone.over)
    assert move is not None and move.placement.devices == (Numa(0),)
    assert move.sentence == f"move layers 0-{one.spec.n_layers - 1} and the embedding and the output to the CPU"


def test_the_error_says_device_bytes_and_the_move() -> None:
    one = model("qwen3moe")
    estimator = Estimator(one.spec, one.graph, one.file.tensors, OPTIONS, machine(24 * GIB))
    plain = OutOfDeviceMemory("the cache", "gpu0", 5_000, 1_000)
    assert str(plain).startswith("the cache needs 5,000 bytes on gpu0 and 1,000 are free; place fewer layers there")
    told = with_move(plain, estimator, all_on_gpu(one))
    assert (told.device, told.asked, told.free, told.missing) == ("gpu0", 5_000, 1_000, 4_000)
    assert str(told) == "the cache needs 5,000 bytes on gpu0 and 1,000 are free; move the experts of layer 2 to the CPU"
    used = estimator.estimate(all_on_gpu(one)).of(Gpu(0)).used
    full = Estimator(one.spec, one.graph, one.file.tensors, OPTIONS, machine(used * 3 // 4))
    more = with_move(plain, full, all_on_gpu(one))  # much more than what failed first has no room
    assert more.move.startswith("move ") and more.move != told.move
    hopeless = OutOfDeviceMemory("the cache", "gpu0", 1 << 50, 0)
    assert with_move(hopeless, estimator, all_on_gpu(one)) is hopeless
    assert with_move(plain, estimator, default_placement(one.spec, OPTIONS)) is plain
