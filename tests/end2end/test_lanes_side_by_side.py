"""Decode with all lanes at once, as on real devices: emulated GPUs in threads of their own meet the CPU's workers at flags."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.errors import Cancelled, DeviceLost, EngineError
from kernels_pyx.executor import AbortFlag
from kernels_pyx.handoff import FAR
from tests.helpers.golden_models import batch, golden, greedy
from tests.helpers.moves import Talk
from tests.helpers.placed import EXACT, Where, anywhere, hybrid, need_torch, open_placed, placed, split
from tests.helpers.runs import open_model

PLACES: dict[str, Where] = {"hybrid": hybrid, "split": split, "anywhere": anywhere(1), "anywhere else": anywhere(11)}


class Beside:
    """Threads in the place of streams. stuck: the next GPU to run never begins."""

    def __init__(self) -> None:
        self.running: list[threading.Thread] = []
        self.stuck = False

    def run(self, usual: Any, lane: Any, first: int, end: int) -> None:
        if not any(call.name == "step epoch" for call in lane.calls):
            usual(lane, first, end)  # pieces one after another
            return
        if self.stuck:
            self.stuck = False
            return
        self.running.append(threading.Thread(target=usual, args=(lane, first, end)))
        self.running[-1].start()

    def join(self) -> None:
        while self.running:
            self.running.pop().join()


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Iterator[Beside]:
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")
    from engine.runtime import gpu_bound, gpu_handoff, gpu_lane

    made = Beside()
    usual = gpu_lane.GpuLane.run
    monkeypatch.setattr(gpu_lane.GpuLane, "run", lambda lane, first, end: made.run(usual, lane, first, end))
    monkeypatch.setattr(gpu_lane.GpuStream, "synchronize", lambda stream: made.join())
    bring = gpu_lane.Outputs.bring

    def behind(outputs: Any, stream: Any, floats: Any) -> None:
        made.join()  # as the stream of a real one orders it
        bring(outputs, stream, floats)

    monkeypatch.setattr(gpu_lane.Outputs, "bring", behind)
    monkeypatch.setattr(gpu_bound, "runs_beside", lambda plan, devices: plan.phase == "decode" and len(plan.lanes) > 1)
    monkeypatch.setattr(gpu_handoff, "LIMIT_S", 5.0)
    monkeypatch.setattr(gpu_handoff.Meeting, "_flags_of", lambda meeting, memory, words: Flags(meeting.host, meeting._limit_s))
    yield made
    made.join()


class Flags:
    """What `GpuFlags` does, by the host's own means."""

    def __init__(self, host: Any, limit_s: float) -> None:
        self._host = host
        self._limit_s = limit_s

    def begin(self) -> None:
        pass

    def reset(self, epoch: int) -> None:
        pass

    def send(self, flag: int, rows: Sequence[tuple[Any, Any]]) -> None:
        for mine, theirs in rows:
            theirs[:, : mine.shape[1]].copy_(mine)
        self._host.signal(flag)

    def take(self, flag: int, rows: Sequence[tuple[Any, Any]]) -> None:
        until = time.monotonic() + self._limit_s
        while (self._host.flag(flag) - self._host.epoch) % (1 << 32) >> 31 and not self._host.stopped:
            if time.monotonic() > until:
                self._host.stop(FAR + flag)
            time.sleep(1e-5)
        for mine, theirs in rows:
            mine.copy_(theirs[:, : mine.shape[1]])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["qwen3moe", "qwen2moe", "gpt-oss", "deepseek2-v3", "qwen35moe", "gemma3"])
def test_answers_are_the_recorded_ones(name: str, place: str, beside: Beside) -> None:
    model = open_placed(golden(name).path, PLACES[place])
    for prompt in ("short", "medium"):
        assert greedy(model, golden(name).ids(prompt), 12) == golden(name).greedy(prompt)[:12]
    model.close()


def test_a_gpu_that_never_comes_ends_the_step_with_a_sentence(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.runtime import gpu_handoff

    monkeypatch.setattr(gpu_handoff, "LIMIT_S", 0.3)
    model = open_placed(golden("qwen3moe").path, hybrid)
    beside.stuck = True
    with pytest.raises(DeviceLost, match=r"gpu0 did not answer the CPU within 0\.3 s"):
        model.step(batch([1]))
    assert greedy(model, golden("qwen3moe").ids("short"), 4) == golden("qwen3moe").greedy("short")[:4]
    model.close()


def test_a_gpu_that_never_comes_is_named_by_another_gpu(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.runtime import gpu_handoff

    monkeypatch.setattr(gpu_handoff, "LIMIT_S", 0.3)
    model = open_placed(golden("qwen3moe").path, split)
    beside.stuck = True
    with pytest.raises(DeviceLost, match=r"gpu0 did not answer gpu1 within 0\.3 s"):
        model.step(batch([1]))
    assert greedy(model, golden("qwen3moe").ids("short"), 4) == golden("qwen3moe").greedy("short")[:4]
    model.close()


def test_a_cpu_that_never_comes_is_named(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of the CPU are late once; the step after is right."""
    from engine.runtime import gpu_executor, gpu_handoff

    monkeypatch.setattr(gpu_handoff, "LIMIT_S", 0.3)
    model = open_placed(golden("qwen3moe").path, hybrid)
    usual = gpu_executor.GpuExecutor._run_cpu
    monkeypatch.setattr(gpu_executor.GpuExecutor, "_run_cpu", lambda *args: beside.join())
    with pytest.raises(DeviceLost, match=r"the CPU did not answer gpu\d within 0\.3 s in the midst of a step; try again"):
        model.step(batch([1]))
    monkeypatch.setattr(gpu_executor.GpuExecutor, "_run_cpu", usual)
    assert greedy(model, golden("qwen3moe").ids("short"), 4) == golden("qwen3moe").greedy("short")[:4]
    model.close()


def test_waits_are_bounded_by_what_a_step_reads() -> None:
    need_torch()
    from engine.runtime.gpu_handoff import wait_limit

    assert wait_limit(0) == wait_limit(1 << 30) == 2.0
    assert wait_limit(17_000_000_000) == pytest.approx(17.0)
    assert wait_limit(10**12) == 120.0


def test_a_step_can_be_stopped_while_it_waits(beside: Beside) -> None:
    abort = AbortFlag()
    path = golden("qwen3moe").path
    model = open_model(path, placed(path, hybrid), abort=abort)
    beside.stuck = True
    threading.Timer(0.2, abort.set).start()
    started = time.perf_counter()
    with pytest.raises(Cancelled):
        model.step(batch([1]))
    assert time.perf_counter() - started < 4
    abort.clear()
    assert greedy(model, golden("qwen3moe").ids("short"), 4) == golden("qwen3moe").greedy("short")[:4]
    model.close()


def test_values_that_are_not_finite_name_their_layer_here_too(beside: Beside) -> None:
    model = open_placed(golden("qwen3moe").path, hybrid, replace(EXACT, n_ctx=64))
    side = model.executor._sides[0]  # type: ignore[union-attr, attr-defined]
    vector = side.weights.vector("blk.1.attn_norm.weight")
    kept = vector.clone()
    vector[0] = np.nan
    with pytest.raises(EngineError, match=r"non-finite values in layer 1 \("):
        model.step(batch([1]))
    vector.copy_(kept)
    assert np.isfinite(model.step(batch([1]))).all()
    model.close()


@pytest.mark.parametrize("name", ["qwen3moe", "qwen35moe"])
def test_a_model_moves_between_steps_of_such_lanes(name: str, beside: Beside) -> None:
    talk = Talk(open_placed(golden(name).path, hybrid, replace(EXACT, n_ctx=256)))
    talk.ask("answer", golden(name).ids("medium"), 32)
    for where in (split, anywhere(3), hybrid):
        talk.steps(4)
        talk.move(where, beside=2)
    talk.run()
    assert talk.ids("answer") == golden(name).greedy("medium")
    talk.model.close()
