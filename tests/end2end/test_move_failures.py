"""Moves that fail, are stopped, have no room or make no sense: everything lies as it did, and the answers go on."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.errors import Cancelled, EngineError, InvalidRequest, OutOfDeviceMemory, OutOfMemory, PlacementError
from engine.placement.placement import Gpu, Numa
from engine.runtime import kv_cache, move
from engine.runtime.loader import LoadedModel
from tests.helpers.golden_models import batch, golden, greedy
from tests.helpers.moves import Talk, holdings, noted_tensors, target, until
from tests.helpers.placed import EXACT, Where, anywhere, hybrid, need_torch, on_cpu, open_placed, split, whole
from tests.helpers.runs import open_reference, write_model


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")


@pytest.fixture
def tensors(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[object]]:
    """What was allocated on emulated devices, as long as it lives."""
    return noted_tensors(monkeypatch)


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
