"""Estimated bytes against what a loaded model really holds, and against the formulas of its architecture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.arch.spec import Attention, DeltaNet, Mla, ModelSpec
from engine.arch.units import UnitId
from engine.errors import InvalidRequest
from engine.estimate.cache import BLOCK
from engine.estimate.kernels import PIECE_BYTES, kept_by_kernels, kernel_bytes
from engine.estimate.memory import DeviceBytes, Estimate, Estimator, estimate_bytes
from engine.hardware.gpus import GpuInfo
from engine.hardware.machine import Machine, this_machine
from engine.placement.options import LoadOptions
from engine.placement.placement import Device, Gpu, Numa, Placement, default_placement, units_of
from engine.program.lower import DECODE_BUCKETS, lower
from engine.program.plan import crossing_bytes
from engine.runtime.buckets import lower_all
from engine.runtime.loader import load
from kernels_pyx.executor import AbortFlag
from tests.helpers.described import Described, described, model
from tests.helpers.golden_models import MODELS, golden
from tests.helpers.hollow import hollow_mixture
from tests.helpers.models import need_included_model

GIB = 1 << 30
TWO = Machine(64 * GIB, 64 * GIB, tuple(GpuInfo(i, "card", 24 * GIB, 24 * GIB) for i in range(2)))
OPTIONS = (
    LoadOptions(n_threads=2),
    LoadOptions(n_threads=2, n_ctx=250, prefill_chunk=64, k_type="q8_0", v_type="int8"),
    LoadOptions(n_threads=1, n_ctx=200, prefill_chunk=7, k_type="f32", v_type="f32", f32_activations=True),
)


def estimated(one: Described, options: LoadOptions, placement: Placement | None = None, machine: Machine = TWO) -> Estimate:
    where = placement or default_placement(one.spec, options)
    return estimate_bytes(one.spec, one.graph, one.file.tensors, where, options, machine)


def check_against_the_ledger(path: Path, options: LoadOptions) -> None:
    one = described(path)
    loaded = load(one.file, one.spec, one.graph, options, lambda phase, done, total: None, AbortFlag())
    try:
        held = {holding.owner: loaded.residency.nbytes(holding.owner) for holding in loaded.residency.holdings}
        executor = loaded.executor
        assert executor is not None
        arena = max(plan.arena_bytes for plan in executor.plans)
    finally:
        loaded.close()
    there = estimated(one, options, machine=this_machine({"LAYERDECK_GPU": "none"})).of(Numa(0))
    assert there.weights == held["weights"]
    assert there.derived == held["derived"]
    assert there.kv == held["kv"]
    assert there.kept_windows == held["kept windows"]
    assert there.state == held.get("state", 0)
    assert there.workspace == arena
    assert abs(there.other - (held["workspace"] - arena)) < max(0.02 * there.used, 8 << 20)


@pytest.mark.parametrize("options", OPTIONS, ids=("default", "8-bit", "exact"))
@pytest.mark.parametrize("name", MODELS)
def test_bytes_are_those_of_the_ledger(name: str, options: LoadOptions) -> None:
    check_against_the_ledger(golden(name).path, options)


def test_bytes_of_the_included_model_are_those_of_the_ledger() -> None:
    check_against_the_ledger(Path(need_included_model()), LoadOptions(n_threads=2))


@pytest.mark.parametrize("name", MODELS)
def test_cache_and_state_follow_the_formulas(name: str) -> None:
    """Bytes a token and a sequence as papers and files give them, at whole blocks of context."""
    one = model(name)
    options = LoadOptions(n_threads=1, n_ctx=4 * BLOCK, prefill_chunk=BLOCK)
    per_token = constant = 0
    for block in one.spec.blocks:
        mixer = block.mixer
        if isinstance(mixer, Mla):
            per_token += 2 * (mixer.rank + mixer.rope.n_rot)
        elif isinstance(mixer, DeltaNet):
            shape = mixer.shape
            values = shape.n_v_heads * shape.dim
            constant += 4 * ((shape.n_taps - 1) * (2 * shape.n_k_heads * shape.dim + values) + values * shape.dim)
        elif isinstance(mixer, Attention) and mixer.window is None:
            per_token += 2 * mixer.n_kv_heads * (mixer.head_dim + mixer.v_dim)
    windowed = sum(
        2
        * block.mixer.n_kv_heads
        * (block.mixer.head_dim + block.mixer.v_dim)
        * min(4 * BLOCK, -(-block.mixer.window // BLOCK) * BLOCK + BLOCK)
        for block in one.spec.blocks
        if isinstance(block.mixer, Attention) and block.mixer.window is not None
    )
    there = estimated(one, options).of(Numa(0))
    assert there.kv == per_token * 4 * BLOCK + windowed
    assert there.state % max(1, constant) == 0 and bool(there.state) == bool(constant)


@st.composite
def placements(draw: st.DrawFn, spec: ModelSpec, devices: tuple[Device, ...]) -> tuple[tuple[UnitId, Device], ...]:
    drawn = {unit: draw(st.sampled_from(devices)) for unit in units_of(spec)}
    return tuple(
        (unit, drawn[UnitId("mixer", unit.layer)] if unit.kind in ("kv", "state") else where) for unit, where in drawn.items()
    )


@settings(max_examples=25, deadline=None)
@given(data=st.data(), name=st.sampled_from(("qwen3moe", "deepseek2-v3", "qwen35moe", "gpt-oss", "gemma3")))
def test_random_placements_add_up(data: st.DataObject, name: str) -> None:
    one = model(name)
    options = replace(OPTIONS[0], stream_experts="off")  # whose plan is one more
    whole = default_placement(one.spec, options)
    placement = replace(whole, units=data.draw(placements(one.spec, (Numa(0), Gpu(0), Gpu(1)))))
    found = estimated(one, options, placement)
    types = {tensor: info.type_id for tensor, info in one.file.tensors.items()}
    plans = lower_all(one.spec, one.graph, placement, types, 512, f32=False)
    for there in found.devices:
        arenas = [lane.arena_bytes for plan in plans for lane in plan.lanes if lane.device == there.device]
        on_gpu = isinstance(there.device, Gpu)
        crossing = [crossing_bytes(plan, lane) for plan in plans for lane in plan.lanes if on_gpu and lane.device == there.device]
        assert there.workspace == max(arenas, default=0) + max(crossing, default=0)
        empty = not arenas and there.device not in placement.devices
        assert (there.used == 0) == empty
    tied = one.spec.head.weight == one.spec.embed and placement.device_of(UnitId("head")) != placement.device_of(UnitId("embed"))
    extra = one.file.tensors[one.spec.embed].nbytes if tied else 0
    weights = sum(there.weights for there in found.devices)
    all_on_cpu = estimated(one, options).of(Numa(0)).weights
    assert all_on_cpu + extra <= weights <= all_on_cpu + extra + 256 * len(one.file.tensors)


@pytest.mark.parametrize("name", ("llama-mha-spm", "qwen3moe", "deepseek2-lite", "qwen35", "gpt-oss"))
def test_the_plan_with_most_rows_takes_most_memory(name: str) -> None:
    """Why an estimate lowers one decode plan and not four."""
    one = model(name)
    types = {tensor: info.type_id for tensor, info in one.file.tensors.items()}
    placement = default_placement(one.spec, OPTIONS[0])
    arenas = [lower(one.graph, placement, "decode", rows, types).arena_bytes for rows in DECODE_BUCKETS]
    assert arenas == sorted(arenas)


def bytes_on(device: Device, used: int, capacity: int) -> DeviceBytes:
    return DeviceBytes(device, used, 0, 0, 0, 0, 0, 0, capacity)


def test_the_limit_is_the_device_with_the_least_room() -> None:
    fits = Estimate((bytes_on(Numa(0), 10, 100), bytes_on(Gpu(0), 9, 10)), 1)
    assert fits.fits and fits.limit.device == Gpu(0)
    over = Estimate((bytes_on(Numa(0), 120, 100), bytes_on(Gpu(0), 11, 10)), 1)
    assert not over.fits and (over.limit.device, over.limit.over) == (Numa(0), 20)


def test_contexts_and_chunks_that_cannot_be_are_refused() -> None:
    one = model("qwen3")
    with pytest.raises(InvalidRequest, match="context"):
        estimated(one, LoadOptions(n_threads=1, n_ctx=1 << 30))
    with pytest.raises(InvalidRequest, match="chunk"):
        estimated(one, LoadOptions(n_threads=1, prefill_chunk=0))


def test_a_gpu_in_use_has_its_context_counted_and_others_nothing() -> None:
    one = model("qwen3moe")
    options = OPTIONS[0]
    placement = replace(default_placement(one.spec, options), units=tuple((unit, Gpu(1)) for unit in units_of(one.spec)))
    estimator = Estimator(one.spec, one.graph, one.file.tensors, options, TWO, context_bytes=GIB)
    found = estimator.estimate(placement)
    assert found.of(Gpu(0)).used == 0
    assert GIB < found.of(Gpu(1)).other < GIB + (256 << 20)
    assert found.of(Gpu(1)).capacity == 24 * GIB
    with pytest.raises(KeyError):
        found.of(Gpu(7))


def test_what_kernels_keep_grows_with_the_model_up_to_a_limit(tmp_path: Path) -> None:
    small, large = model("qwen3moe"), described(hollow_mixture(tmp_path / "hollow.gguf", 2))
    kept = []
    for one in (small, large):
        types = {name: info.type_id for name, info in one.file.tensors.items()}
        placement = replace(default_placement(one.spec, OPTIONS[0]), units=tuple((unit, Gpu(0)) for unit in units_of(one.spec)))
        (lane,) = lower(one.graph, placement, "prefill", 512, types).lanes
        found = kept_by_kernels(lane, 512, one.file.tensors, 4096, f32=False)
        scratch = PIECE_BYTES * sum(name in found for name in ("weights", "products"))
        kept.append((scratch, kernel_bytes([found]) - scratch))
    # Scratch is one piece however small a model is; what attention splits grows with its heads.
    assert kept[0][0] == PIECE_BYTES and kept[1][0] == 2 * PIECE_BYTES
    assert 0 < kept[0][1] < kept[1][1] < 16 << 20
