"""Long chunks whose experts are brought from the machine's memory layer by layer give what the CPU's experts give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.placement.placement import Gpu
from tests.helpers.golden_models import batch, golden, greedy
from tests.helpers.models import need_goldens
from tests.helpers.placed import EXACT, anywhere, hybrid, need_torch, on_cpu, open_placed
from tests.helpers.runs import prefill_batch

MIXTURES = ("qwen3moe", "qwen2moe", "gpt-oss", "deepseek2-v3", "glm4moe", "qwen35moe-fused-gate_up", "hunyuan-moe")


@pytest.fixture(autouse=True)
def streaming(monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")
    monkeypatch.setattr("engine.runtime.gpu_loader.worth_streaming", lambda devices: True)
    monkeypatch.setattr("engine.runtime.gpu_loader.LEAST_ROWS", 1)
    monkeypatch.setattr("engine.runtime.gpu_stream.LEAST_ROWS", 16)
    monkeypatch.setattr("engine.runtime.gpu_stream.PIECE_BYTES", 3001)


@pytest.mark.parametrize("name", MIXTURES)
def test_logits_and_answers_are_the_recorded_ones(name: str) -> None:
    ids, recorded = golden(name).ids("medium"), golden(name).logits("medium")
    for where in (hybrid, anywhere(4)):
        model = open_placed(golden(name).path, where)
        assert np.abs(model.step(batch(ids))[-len(recorded) :] - recorded).max() < 2e-3
        assert greedy(model, ids, 8, chunk=32) == golden(name).greedy("medium")[:8]
        model.close()
        model.close()


def test_quantised_experts_pass_through_the_ring() -> None:
    path = need_goldens("quant") / "q256-qwen3moe.Q4_K.gguf"
    ids = [(7 * i) % 250 for i in range(50)]
    exact, model = open_placed(path, on_cpu), open_placed(path, hybrid, replace(EXACT, n_ctx=256))
    ring = sum(one.nbytes for one in model.residency.holdings if one.device == Gpu(0) and one.owner == "workspace")
    assert ring > 0
    for _ in range(2):  # the second time behind a step that left the last layers in the ring
        assert np.abs(model.step(batch(ids)) - exact.step(batch(ids))).max() < 1e-3
    table = np.arange(8, dtype=np.int32)
    none = prefill_batch(ids[:40], 0, table, [])  # nobody wants logits: the last layer's experts are not used
    assert model.step(none).shape == (0, model.spec.n_vocab)
    rest = prefill_batch(ids[40:], 40, table)
    exact.step(none)
    assert np.abs(model.step(rest) - exact.step(rest)).max() < 1e-3
    exact.close()
    model.close()


def test_without_room_for_the_ring_the_cpu_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.errors import OutOfDeviceMemory
    from engine.runtime import gpu_side

    def full(*args: object, **options: object) -> None:
        raise OutOfDeviceMemory("the ring", "gpu0", 2, 1)

    monkeypatch.setattr(gpu_side, "ExpertStream", full)
    model = open_placed(golden("qwen3moe").path, hybrid)
    ids, recorded = golden("qwen3moe").ids("medium"), golden("qwen3moe").logits("medium")
    assert np.abs(model.step(batch(ids))[-len(recorded) :] - recorded).max() < 2e-3
    model.close()


def test_the_faster_way_is_taken_once_both_are_known() -> None:
    from engine.runtime.gpu_stream import StreamChoice

    assert not StreamChoice(False).streams(4096)
    choice = StreamChoice(True)
    assert choice.streams(16) and not choice.streams(15)
    choice.took(512, 0.4, streamed=True)
    choice.took(8, 1.0, streamed=False)  # says little
    assert choice.streams(16)
    choice.took(100, 0.1, streamed=False)
    assert [choice.streams(n) for n in (100, 399, 401, 2048)] == [False, False, True, True]
