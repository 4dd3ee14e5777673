"""A loaded model moves from placement to placement in the midst of its answers: as if it had been loaded where it lies now."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import Cancelled, EngineError, InvalidRequest, OutOfDeviceMemory, OutOfMemory, PlacementError
from engine.placement.placement import Gpu, Numa, Pool
from engine.runtime import kv_cache, move
from engine.runtime.loader import LoadedModel
from tests.helpers.golden_models import batch, golden, greedy
from tests.helpers.moves import Talk, holdings, target, until
from tests.helpers.placed import EXACT, Where, anywhere, hybrid, need_torch, on_cpu, open_placed, split, whole
from tests.helpers.pooled import with_pools
from tests.helpers.runs import open_reference, write_model

KINDS = (
    "qwen3",
    "qwen3moe",
    "gemma3",
    "gpt-oss",
    "deepseek2-lite",
    "deepseek2-v3",
    "qwen35",
    "qwen35moe",
    "qwen3next",
    "glm4moe",
)
"""Grouped attention, windows, sinks, latent attention, gated DeltaNet, experts with and without shared ones."""
PLACES = (on_cpu, whole, hybrid, split)


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")


def some_where(rng: random.Random) -> Where:
    """One of the usual placements, or every unit anywhere."""
    return rng.choice((*PLACES, anywhere(rng.randrange(1000)), anywhere(rng.randrange(1000))))


@pytest.mark.parametrize("name", KINDS)
def test_answers_go_on_over_random_moves(name: str) -> None:
    """Five moves in an answer, fifty in all: nothing is computed again, and the rest of the chat finds its prefix."""
    rng = random.Random(f"moves {name}")
    where = some_where(rng)
    talk = Talk(open_placed(golden(name).path, where))
    ids = golden(name).ids("medium")
    talk.ask("answer", ids, 32)
    for _ in range(5):
        talk.steps(3)
        where = some_where(rng)
        talk.move(where, beside=rng.randrange(3))
        assert talk.model.placement == target(talk.model, where)
    assert not talk.session.idle
    talk.run()
    answer = talk.ids("answer")
    assert answer == golden(name).greedy("medium")
    assert talk.counted.n_prefilled == len(ids)

    fresh = open_placed(golden(name).path, where)
    assert holdings(talk.model) == holdings(fresh)
    longer = [*ids, *answer, 7, 8, 9]
    talk.ask("longer", longer, 12)
    talk.run()
    talk.ask("again", ids, 32)
    talk.run()
    assert talk.ids("longer") == greedy(fresh, longer, 12)
    assert talk.ids("again") == greedy(fresh, ids, 32)
    assert talk.end("longer").usage.n_reused >= len(ids) and talk.end("again").usage.n_reused > 0
    talk.model.close()
    fresh.close()


@pytest.mark.parametrize("name", ["qwen3", "gemma3", "qwen35moe", "deepseek2-lite"])
def test_several_answers_and_a_prompt_half_way_move_too(name: str) -> None:
    talk = Talk(open_placed(golden(name).path, on_cpu, replace(EXACT, prefill_chunk=32)), 32)
    talk.ask("one", golden(name).ids("medium"), 24)
    talk.steps(4)
    talk.ask("two", golden(name).ids("short"), 24)
    talk.steps(3)
    talk.ask("late", golden(name).ids("long"), 8)
    talk.steps(3)  # its first chunks
    for where in (split, hybrid, whole, on_cpu):
        talk.move(where)
        talk.steps(2)
    talk.run()
    assert talk.ids("one") == golden(name).greedy("medium")[:24]
    assert talk.ids("two") == golden(name).greedy("short")[:24]
    assert talk.ids("late") == golden(name).greedy("long")[:8]
    usages = [talk.end(one).usage for one in ("one", "two", "late")]
    assert talk.counted.n_prefilled == sum(one.n_prompt - one.n_reused for one in usages)
    talk.model.close()


@pytest.mark.parametrize("kind", ["f32", "f16", "q8_0", "int8"])
@pytest.mark.parametrize("name", ["qwen3", "gemma3", "deepseek2-lite", "qwen35"])
def test_caches_and_states_there_and_back_are_the_same_bytes(name: str, kind: Any) -> None:
    talk = Talk(open_placed(golden(name).path, on_cpu, replace(EXACT, k_type=kind, v_type=kind)))
    talk.ask("answer", golden(name).ids("medium"), 32)
    talk.steps(8)
    live, before = talk.session.live(), contents(talk.model)
    assert sum(map(len, live.blocks)) > 0
    talk.move(whole, 0)
    talk.move(split, 0)
    talk.move(on_cpu, 0)
    after = contents(talk.model)
    for layer, rows in before.items():
        wanted = live.slots if layer in talk.model.placed.states.layers else live.blocks[group(talk.model, layer)]  # type: ignore[union-attr]
        assert len(wanted) and np.array_equal(rows[wanted], after[layer][wanted])
        assert rows[wanted].any()
    talk.model.close()


def contents(model: LoadedModel) -> dict[int, np.ndarray[Any, Any]]:
    """By layer, the bytes of its blocks or slots on the CPU."""
    placed = model.placed
    assert placed is not None
    found = {layer: (one.arena, one.block_bytes) for layer, one in placed.cache.layers.items()}
    found |= {layer: (one.arena, one.slot_bytes) for layer, one in placed.states.layers.items()}
    return {
        layer: np.frombuffer(memoryview(arena), np.uint8).reshape(-1, nbytes).copy() for layer, (arena, nbytes) in found.items()
    }


def group(model: LoadedModel, layer: int) -> int:
    """The cache group of a layer."""
    assert model.placed is not None
    return model.placed.cache.layers[layer].group


@pytest.mark.parametrize("kind", ["q8_0", "int8"])
@pytest.mark.parametrize("name", ["qwen3", "gpt-oss", "deepseek2-lite"])
def test_what_a_cache_of_fewer_bits_holds_means_the_same_elsewhere(name: str, kind: Any) -> None:
    """A prompt that was computed on the CPU and moved, beside one that was computed where it lies."""
    options = replace(EXACT, k_type=kind, v_type=kind)
    moved, there = open_placed(golden(name).path, on_cpu, options), open_placed(golden(name).path, whole, options)
    ids = golden(name).ids("medium")
    for model in (moved, there):
        model.step(batch(ids[:-1], 0, 0))
    moved.move(target(moved, whole))
    ours, theirs = moved.step(batch(ids[-1:], len(ids) - 1)), there.step(batch(ids[-1:], len(ids) - 1))
    assert np.abs(ours - theirs).max() < 0.02 * np.abs(theirs).max()
    moved.close()
    there.close()


def test_only_what_differs_is_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    model = open_placed(golden("qwen3moe").path, whole)
    weights = {one.name: one.nbytes for one in model.source.file.tensors.values() if "exps" in one.name}
    found = model.move(target(model, hybrid))
    assert found.moved_bytes == sum(weights.values())
    assert model.move(target(model, hybrid)).moved_bytes == 0
    back = model.move(target(model, whole))
    assert back.moved_bytes == sum(weights.values())
    model.close()


@pytest.fixture
def tensors(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[object]]:
    """What was allocated on emulated devices, as long as it lives."""
    from engine.runtime.gpu import GpuMemory

    found: list[weakref.ref[object]] = []
    usual = GpuMemory.allocate

    def allocate(self: GpuMemory, *args: Any, **options: Any) -> Any:
        tensor = usual(self, *args, **options)
        found.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(GpuMemory, "allocate", allocate)
    return found


def test_what_has_moved_is_freed(tensors: list[weakref.ref[object]]) -> None:
    model = open_placed(golden("qwen35moe").path, on_cpu)
    threads = threading.active_count()
    for where in (whole, split, on_cpu):
        model.move(target(model, where))
    gc.collect()
    assert tensors and not [one for one in tensors if one() is not None]
    assert threading.active_count() == threads
    model.close()
    assert threading.active_count() <= threads


class Allocations:
    """Counts what is taken, and lets some of it fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from engine.runtime import gpu, pinned

        self.n = 0
        self.fails: range = range(0)
        usual, arena = gpu.GpuMemory.allocate, kv_cache.allocate

        def of_gpu(memory: gpu.GpuMemory, shape: Any, dtype: Any, owner: Any, what: str, **options: Any) -> Any:
            if self._is_due():
                raise OutOfDeviceMemory(what, str(memory.device), 1 << 40, 0)
            return usual(memory, shape, dtype, owner, what, **options)

        def of_cpu(nbytes: int, what: str, advice: str, **options: Any) -> Any:
            if self._is_due():
                raise OutOfMemory(f"{what} needs {nbytes:,} bytes of memory and 0 are free; {advice}")
            return arena(nbytes, what, advice, **options)

        monkeypatch.setattr(gpu.GpuMemory, "allocate", of_gpu)
        for module in (kv_cache, pinned):
            monkeypatch.setattr(module, "allocate", of_cpu)
        monkeypatch.setattr("engine.runtime.cpu_programs.allocate", of_cpu)

    def _is_due(self) -> bool:
        self.n += 1
        return self.n - 1 in self.fails

    def begin(self, fails: range = range(0)) -> None:
        """From now on it counts from 0; these fail."""
        self.n, self.fails = 0, fails


WAYS: dict[str, tuple[Where, Where]] = {
    "qwen3moe": (on_cpu, whole),
    "qwen35moe": (whole, on_cpu),
    "deepseek2-lite": (hybrid, split),
    "gemma3": (split, anywhere(11)),
}


@pytest.mark.parametrize("name", WAYS)
def test_a_failed_allocation_anywhere_leaves_everything_as_it_was(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    way, taken = WAYS[name], Allocations(monkeypatch)
    model = open_placed(golden(name).path, way[0])
    model.move(target(model, way[1]))
    model.move(target(model, way[0]))
    taken.begin()
    model.move(target(model, way[1]))
    n, there = taken.n, model.placement
    assert n > 3
    taken.begin()
    model.move(target(model, way[0]))
    before, here = holdings(model), model.placement
    ids, recorded = golden(name).ids("short"), golden(name).greedy("short")
    talk = Talk(model)
    talk.ask("answer", ids, 32)
    talk.steps(2)
    for k in range(n):
        taken.begin(range(k, 1 << 30))  # from there on nothing is had
        with pytest.raises(OutOfMemory, match=r"needs [\d,]+ bytes .* are free; "):
            talk.move(way[1], beside=int(k % 4 == 0))
        taken.begin()
        assert model.placement == here and holdings(model) == before
    talk.run()
    assert talk.ids("answer") == recorded
    for k in range(0, n, 3):
        taken.begin(range(k, k + 1))  # only once: in parts it may still be done
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(move, "parts_of", lambda now, then: ())
            with pytest.raises(OutOfMemory):
                model.move(target(model, way[1]))
        assert model.placement == here and holdings(model) == before
    taken.begin()
    model.move(target(model, way[1]))
    assert model.placement == there
    assert greedy(model, ids, 32) == recorded
    model.close()


@pytest.fixture(scope="module")
def layered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("layered") / "model.gguf"
    return write_model(path, quant="Q8_0", n_layers=10, n_embd=256, n_ff=4096, n_ctx=256)


def turned_round(unit: Any, spec: Any) -> Any:
    """`split`, with the GPUs exchanged."""
    found = split(unit, spec)
    return Gpu(1 - found.index) if isinstance(found, Gpu) else found


OPTIONS = replace(EXACT, n_ctx=256, prefill_chunk=32)


@pytest.fixture
def tight(layered: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Talk]:
    """A model over two GPUs that have room for little more than their half of it."""
    model = open_placed(layered, split, OPTIONS)
    most = max(side.memory.nbytes for side in model.executor.sides)  # type: ignore[union-attr, attr-defined]
    model.close()
    monkeypatch.setenv("LAYERDECK_GPU", f"emulate:2x{(most + (8 << 20)) / (1 << 30):.6f}")
    talk = Talk(open_placed(layered, split, OPTIONS), 32)
    yield talk
    talk.model.close()


def hops(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The placements that were taken from now on."""
    found: list[Any] = []
    usual = LoadedModel.take
    monkeypatch.setattr(LoadedModel, "take", lambda model, placed: (found.append(placed.placement), usual(model, placed))[1])
    return found


def test_where_both_do_not_fit_it_is_done_in_parts(tight: Talk, layered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, taken = tight.model, hops(monkeypatch)
    ids = list(range(40, 75))
    reference = open_reference(layered)
    expected = greedy(reference, ids, 20)
    tight.ask("answer", ids, 20)
    tight.steps(6)
    tight.move(turned_round)
    assert len(taken) > 1 and model.placement == target(model, turned_round) == taken[-1]
    tight.run()
    assert tight.ids("answer") == expected and tight.counted.n_prefilled == len(ids)
    fresh = open_placed(layered, turned_round, OPTIONS)
    assert holdings(model) == holdings(fresh)
    fresh.close()


def test_a_failure_of_a_later_part_undoes_those_before(tight: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    model, taken = tight.model, hops(monkeypatch)
    before, here = holdings(model), model.placement
    usual = move.Move._hop

    def hop(self: Any, where: Any) -> None:
        if len(taken) == 1 and where != here and not told:
            told.append(where)
            raise PlacementError("this part cannot be moved")
        usual(self, where)

    told: list[Any] = []
    monkeypatch.setattr(move.Move, "_hop", hop)
    with pytest.raises(PlacementError, match="this part"):
        tight.move(turned_round)
    assert len(taken) > 1 and model.placement == here and holdings(model) == before


def test_what_does_not_fit_at_all_is_refused_with_a_move(tight: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    model, taken = tight.model, hops(monkeypatch)
    before, here = holdings(model), model.placement
    with pytest.raises(OutOfDeviceMemory, match=r"needs [\d,]+ bytes on gpu0 and [\d,]+ are free; (move|place) "):
        tight.move(whole)
    assert not taken and model.placement == here and holdings(model) == before


@pytest.mark.parametrize("phase", ["room", "weights", "warmup", "switch"])
def test_a_cancel_in_any_phase_undoes_it(phase: str, monkeypatch: pytest.MonkeyPatch, tensors: list[weakref.ref[object]]) -> None:
    model = open_placed(golden("qwen3moe").path, on_cpu)
    talk, before, here = Talk(model), holdings(model), model.placement
    talk.ask("answer", golden("qwen3moe").ids("medium"), 32)
    talk.steps(4)
    usual = move.Move._tell

    def tell(self: Any, now: str, done: int, total: int) -> None:
        usual(self, now, done, total)
        if now == phase:
            self.cancel()

    monkeypatch.setattr(move.Move, "_tell", tell)
    with pytest.raises(Cancelled):
        talk.move(split)
    monkeypatch.setattr(move.Move, "_tell", usual)
    assert model.placement == here and holdings(model) == before
    talk.run()
    assert talk.ids("answer") == golden("qwen3moe").greedy("medium")
    gc.collect()
    assert not [one for one in tensors if one() is not None]
    model.close()


def test_closing_a_model_that_moves_ends_the_move() -> None:
    model = open_placed(golden("qwen3moe").path, on_cpu)
    found = model.begin_move(target(model, whole))
    until(lambda: found.progress.phase != "room")
    model.close()
    assert found.poll()
    with pytest.raises(EngineError, match="closed"):
        model.step(batch([1]))


def test_what_cannot_be_had_without_loading_again_is_told() -> None:
    model = open_placed(golden("qwen3").path, on_cpu)
    assert model.placement is not None
    with pytest.raises(PlacementError, match=r"holds f32/f32 values and the placement wants f16/f32; load the model again"):
        model.begin_move(replace(model.placement, k_type="f16"))
    with pytest.raises(PlacementError, match="made for another model"):
        model.begin_move(replace(model.placement, units=model.placement.units[1:]))
    apart = tuple((unit, Gpu(0) if unit.kind == "kv" else Numa(0)) for unit, _ in model.placement.units)
    with pytest.raises(PlacementError, match=r"kv\.0 is on gpu0 and the attention that reads it is not; move both"):
        model.begin_move(replace(model.placement, units=apart))
    with pytest.raises(PlacementError, match="gpu7"):
        model.move(target(model, lambda unit, spec: Gpu(7)))
    one = model.begin_move(target(model, whole))
    with pytest.raises(InvalidRequest, match="another placement is being applied"):
        model.begin_move(target(model, split))
    one.wait()
    model.end_move()
    assert greedy(model, golden("qwen3").ids("short"), 8) == golden("qwen3").greedy("short")[:8]
    model.close()


@pytest.mark.parametrize("name", ["qwen3moe", "qwen35moe"])
def test_experts_that_pass_through_a_ring_move_too(name: str) -> None:
    """Long chunks bring the CPU's experts to the GPU, before and after, and what is told about the bus stays known."""
    options = replace(EXACT, stream_experts="on", prefill_chunk=32)
    talk = Talk(open_placed(golden(name).path, hybrid, options), 32)
    ids = golden(name).ids("medium")
    talk.ask("answer", ids, 32)
    talk.steps(6)
    for where in (lambda unit, spec: Numa(0) if unit.kind == "experts" and unit.layer else Gpu(0), split, hybrid):
        talk.move(where)
        talk.steps(3)
    talk.run()
    assert talk.ids("answer") == golden(name).greedy("medium")
    fresh = open_placed(golden(name).path, hybrid, options)
    assert holdings(talk.model) == holdings(fresh)
    talk.ask("other", golden(name).ids("long"), 8)
    talk.run()
    assert talk.ids("other") == golden(name).greedy("long")[:8]
    talk.model.close()
    fresh.close()


@pytest.mark.parametrize("name", ["qwen3moe", "gpt-oss"])
def test_pools_of_experts_are_made_where_they_are_wanted_and_go_again(name: str) -> None:
    talk = Talk(open_placed(golden(name).path, hybrid))
    plain = talk.model.placement
    assert plain is not None and talk.model.pools is None
    talk.ask("answer", golden(name).ids("medium"), 32)
    for placement in (with_pools(plain, talk.model.spec, 1), with_pools(plain, talk.model.spec, 2), plain):
        talk.steps(5)
        talk.finish(talk.model.begin_move(placement, talk.session.live))
        assert talk.model.placement == placement and (talk.model.pools is not None) == bool(placement.pools)
        if talk.model.pools is not None:
            assert talk.model.pools.mode == "promote"
            talk.model.pools.use("keep")
            talk.finish(talk.model.begin_move(placement, talk.session.live), 0)
            assert talk.model.pools.mode == "keep"
            talk.model.pools.use("promote")
    talk.run()
    assert talk.ids("answer") == golden(name).greedy("medium")
    fresh = open_placed(golden(name).path, hybrid)
    assert holdings(talk.model) == holdings(fresh)
    with pytest.raises(PlacementError, match=r"no experts to pool|must name some of the experts"):
        talk.model.begin_move(replace(plain, pools=(Pool(1, Gpu(0), (9999,)),)))
    fresh.close()
    talk.model.close()


@pytest.mark.parametrize("name", ["qwen3moe", "gemma3", "deepseek2-v3", "qwen3next"])
def test_getting_warm_beside_steps_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on real devices: every plan runs on padding alone, by the thread that builds, while the other one steps."""
    monkeypatch.setattr("engine.runtime.gpu_warmup.needs_warmth", lambda sides: True)
    talk = Talk(open_placed(golden(name).path, hybrid))
    talk.ask("answer", golden(name).ids("medium"), 32)
    for where in (whole, split, anywhere(5), hybrid):
        talk.steps(2)
        talk.move(where, beside=4)
    talk.run()
    assert talk.ids("answer") == golden(name).greedy("medium")
    talk.model.close()


def test_states_keep_their_slots_wherever_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small card sets how many snapshots there are, also for a model that is on the CPU now."""
    path = golden("qwen35").path
    large = open_placed(path, on_cpu)
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:1x0.03")
    model, there = open_placed(path, on_cpu), open_placed(path, whole)
    assert model.state_slots == there.state_slots < large.state_slots
    model.move(target(model, whole))
    assert holdings(model) == holdings(there)
    for one in (large, model, there):
        one.close()
