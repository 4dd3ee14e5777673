"""Chunks whose experts are brought from the machine's memory layer by layer give what the CPU's experts give."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.arch.units import UnitId
from engine.errors import Cancelled, OutOfDeviceMemory
from engine.placement import streaming
from engine.placement.placement import Gpu, Numa
from engine.runtime.loader import LoadedModel
from kernels_pyx.executor import AbortFlag
from tests.helpers.golden_models import MODELS, batch, golden, greedy
from tests.helpers.models import need_goldens
from tests.helpers.placed import EXACT, anywhere, hybrid, need_torch, on_cpu, open_placed
from tests.helpers.runs import prefill_batch

MIXTURES = tuple(name for name in MODELS if "moe" in name or name.startswith(("deepseek2", "gpt-oss", "qwen3next", "minimax")))
STREAMED = replace(EXACT, stream_experts="on")
Q4, Q6 = "q256-qwen3moe.Q4_K.gguf", "q256-qwen3moe.Q6_K.gguf"


@pytest.fixture(autouse=True)
def streaming_in_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")
    monkeypatch.setattr(streaming, "CHUNK_BYTES", 70001)


def held(model: LoadedModel, device: Gpu | Numa) -> int:
    return sum(one.nbytes for one in model.residency.holdings if one.device == device and one.owner == "workspace")


def executor_of(model: LoadedModel) -> Any:
    """The executor, which must have something to bring."""
    executor: Any = model.executor
    assert any(side.experts is not None for side in executor._sides)
    return executor


def brought(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Is told the layers, by position, that arrive in steps of shapes that come for the first time from now on."""
    from engine.runtime import gpu_stream

    arrived: list[int] = []
    arrive = gpu_stream.ExpertStream.arrive

    def told(self: gpu_stream.ExpertStream, position: int) -> None:
        arrive(self, position)
        arrived.append(position)

    monkeypatch.setattr(gpu_stream.ExpertStream, "arrive", told)
    return arrived


@pytest.mark.parametrize("name", MIXTURES)
def test_logits_and_answers_are_the_recorded_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, recorded = golden(name).ids("medium"), golden(name).logits("medium")
    arrived = brought(monkeypatch)
    for where in (hybrid, anywhere(4)):
        model = open_placed(golden(name).path, where, STREAMED)
        del arrived[:]
        assert np.abs(model.step(batch(ids))[-len(recorded) :] - recorded).max() < 2e-3
        if where is hybrid:
            n_layers = sum(hasattr(block.ffn, "n_experts") for block in model.spec.blocks)
            assert arrived == list(range(n_layers))
        assert greedy(model, ids, 8, chunk=32) == golden(name).greedy("medium")[:8]
        model.close()
        model.close()


@pytest.mark.parametrize("name", ["qwen3moe", "gpt-oss", "deepseek2-lite", "qwen35moe"])
def test_default_kernels_are_close_to_those_of_the_cpu(name: str) -> None:
    ids = golden(name).ids("medium")
    exact, model = (
        open_placed(golden(name).path, on_cpu),
        open_placed(golden(name).path, hybrid, replace(STREAMED, f32_activations=False)),
    )
    executor_of(model)
    assert np.abs(model.step(batch(ids)) - exact.step(batch(ids))).max() < 1e-2
    exact.close()
    model.close()


@pytest.mark.parametrize(("size", "name"), [*((size, Q4) for size in (1, 2, 7, 16, 33, 64)), (16, Q6), (64, Q6)])
def test_chunks_of_any_size_give_the_same_logits(size: int, name: str) -> None:
    """Q6_K among them: padded where a GPU keeps it, as the file holds it where it passes."""
    path = need_goldens("quant") / name
    ids = [(7 * i) % 250 for i in range(70)]
    exact, model = open_placed(path, on_cpu), open_placed(path, hybrid, replace(STREAMED, n_ctx=256))
    table = np.arange(8, dtype=np.int32)
    theirs = exact.step(prefill_batch(ids, 0, table))
    parts = [model.step(prefill_batch(ids[start : start + size], start, table)) for start in range(0, len(ids), size)]
    assert np.abs(np.concatenate(parts) - theirs).max() < 1e-3
    exact.close()
    model.close()


def test_a_chunk_of_which_nobody_wants_logits_leaves_nothing_on_its_way() -> None:
    path = need_goldens("quant") / Q4
    ids = [(7 * i) % 250 for i in range(50)]
    exact, model = open_placed(path, on_cpu), open_placed(path, hybrid, replace(STREAMED, n_ctx=256))
    table = np.arange(8, dtype=np.int32)
    none = prefill_batch(ids[:40], 0, table, [])  # the last layer's experts are not used
    assert model.step(none).shape == (0, model.spec.n_vocab)
    assert all(side.experts._passage is None for side in executor_of(model)._sides if side.experts)
    rest = prefill_batch(ids[40:], 40, table)
    exact.step(none)
    assert np.abs(model.step(rest) - exact.step(rest)).max() < 1e-3
    exact.close()
    model.close()


def test_an_abort_in_the_middle_ends_the_step_and_the_next_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.runtime import gpu_stream

    ids, recorded = golden("qwen3moe").ids("medium"), golden("qwen3moe").logits("medium")
    model = open_placed(golden("qwen3moe").path, hybrid, STREAMED)
    abort: AbortFlag = executor_of(model)._abort
    leave = gpu_stream.ExpertStream.leave

    def cut(self: gpu_stream.ExpertStream, position: int) -> None:
        abort.set()  # and the next layer never leaves the file
        self._ferry.stop()  # type: ignore[union-attr]

    monkeypatch.setattr(gpu_stream.ExpertStream, "leave", cut)
    with pytest.raises(Cancelled):
        model.step(batch(ids))
    monkeypatch.setattr(gpu_stream.ExpertStream, "leave", leave)
    abort.clear()
    assert [one.name for one in threading.enumerate() if "experts" in one.name]  # it waits for the next step
    fresh = batch(ids[:-1])  # of another shape, bound anew
    model.step(fresh)
    again = model.step(batch(ids[-1:], len(ids) - 1))
    assert np.abs(again - recorded[-1:]).max() < 2e-3
    model.close()
    assert not [one.name for one in threading.enumerate() if "experts" in one.name]


def test_what_goes_wrong_on_the_way_is_said_by_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.runtime import gpu_stream

    ids, recorded = golden("qwen3moe").ids("medium"), golden("qwen3moe").logits("medium")
    model = open_placed(golden("qwen3moe").path, hybrid, STREAMED)
    send = gpu_stream.ExpertStream._send_part

    def lost(self: gpu_stream.ExpertStream, ferry: object, passage: object, i: int, into: object) -> bool:
        if i == 4:
            raise OutOfDeviceMemory("the working memory of a kernel", "gpu0", 2, 1)
        return send(self, ferry, passage, i, into)  # type: ignore[arg-type]

    monkeypatch.setattr(gpu_stream.ExpertStream, "_send_part", lost)
    with pytest.raises(OutOfDeviceMemory):
        model.step(batch(ids))
    monkeypatch.setattr(gpu_stream.ExpertStream, "_send_part", send)
    assert np.abs(model.step(batch(ids))[-len(recorded) :] - recorded).max() < 2e-3
    model.close()


def test_without_room_for_the_ring_the_cpu_computes_and_a_note_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.runtime import gpu_side

    def full(*args: object, **options: object) -> None:
        raise OutOfDeviceMemory("the ring through which experts pass", "gpu0", 2, 1)

    monkeypatch.setattr(gpu_side, "ExpertStream", full)
    model = open_placed(golden("qwen3moe").path, hybrid, STREAMED)
    assert model.notes[-1].startswith(
        "Long prompts are computed with the experts on the CPU, for they cannot be brought to the GPU"
    )
    ids, recorded = golden("qwen3moe").ids("medium"), golden("qwen3moe").logits("medium")
    assert np.abs(model.step(batch(ids))[-len(recorded) :] - recorded).max() < 2e-3
    model.close()


def test_experts_that_gpus_do_not_read_stay_with_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived = brought(monkeypatch)
    stays = UnitId("experts", 0)
    monkeypatch.setattr("engine.runtime.stream_plan.unreadable", lambda graph, types: frozenset({stays}))
    model = open_placed(golden("qwen3moe").path, hybrid, STREAMED)
    ids, recorded = golden("qwen3moe").ids("medium"), golden("qwen3moe").logits("medium")
    del arrived[:]
    assert np.abs(model.step(batch(ids))[-len(recorded) :] - recorded).max() < 2e-3
    assert arrived == list(range(model.spec.n_layers - 1))
    model.close()


def test_ring_and_pinned_memory_are_held_and_given_back() -> None:
    path = need_goldens("quant") / Q4
    models = [open_placed(path, hybrid, replace(EXACT, stream_experts=mode)) for mode in ("off", "on")]  # type: ignore[arg-type]
    experts = [models[1].source.weights.tensor(f"blk.0.ffn_{name}_exps.weight").nbytes for name in ("gate", "up", "down")]
    ring = streaming.ring_bytes([experts])
    assert ring == 2 * sum(map(streaming.aligned, experts))
    assert held(models[1], Gpu(0)) - held(models[0], Gpu(0)) >= ring > 0
    assert held(models[1], Numa(0)) - held(models[0], Numa(0)) >= streaming.CHUNKS * streaming.CHUNK_BYTES
    memory = executor_of(models[1])._sides[0].memory
    for model in models:
        model.close()
    assert memory.nbytes == 0
