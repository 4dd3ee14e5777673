"""What the engine counts while it works: by hand with a model that only pretends, and with a real one through its events."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from engine.api.commands import Generate, LoadModel, WatchSensors
from engine.api.events import Counters, Event, Sensors
from engine.api.values import LoadOptions, SamplingParams
from engine.estimate.reads import TokenReads
from engine.placement.placement import WorkerPlan
from engine.runtime.measured import PartTime, StepTimes, node_parts
from engine.runtime.step import StepBatch
from engine.runtime.teams import Teams
from engine.service.work_meter import WorkMeter
from tests.helpers.golden_models import LLAMAS, golden
from tests.helpers.recorder import Recorder, new_id


class Pretender:
    """Its steps take 10 ms; a measured one says that the CPU computed for three quarters of it and the GPU for the rest."""

    n_ctx, placement = 64, None

    def __init__(self) -> None:
        self.executor = SimpleNamespace(measure=False, measured=None, crossed={"gpu0": (400, 100)})
        self.n_measured = 0

    def step(self, batch: StepBatch) -> Any:
        time.sleep(0.01)
        if self.executor.measure:
            self.n_measured += 1
            parts = (PartTime("numa0", 0.0075, 0.0025), PartTime("gpu0", 0.0025, 0.0075))
            self.executor.measured = StepTimes(parts, (("numa0", "experts expertsdown", 0.004),))
        return np.zeros((1, 4), np.float32)


def batch(n_rows: int, phase: Any = "decode", position: int = 10) -> StepBatch:
    rows = np.arange(n_rows, dtype=np.int32)
    table = tuple(np.zeros((1, 1), np.int32) for _ in range(n_rows if phase == "decode" else 1))
    return StepBatch(phase, rows, np.full(n_rows, position, np.int32), rows, table, rows)


def test_a_node_works_as_long_as_its_workers_do() -> None:
    teams = Teams(WorkerPlan((0, 1, 2)), (0, 0, 1), (1, 3))
    found = node_parts(teams, np.array((4_000_000, 6_000_000, 9_000_000)), 0.010)
    assert [one.device for one in found] == ["numa1", "numa3"]
    assert [one.computing_s for one in found] == pytest.approx([0.005, 0.009])
    assert [one.waiting_s for one in found] == pytest.approx([0.005, 0.001])
    late = node_parts(teams, np.array((0, 0, 30_000_000)), 0.010)  # clocks of the caller and of a worker that began before
    assert late[0].computing_s == 0 and late[1] == PartTime("numa3", 0.010, 0.0)


def meter_of(model: Pretender) -> WorkMeter:
    reads = {"numa0": TokenReads(1000, 24, ((None, 8), (4, 2))), "gpu0": TokenReads(500, 0, ())}
    return WorkMeter(cast(Any, model), lambda: reads)


def test_counts_by_hand() -> None:
    model = Pretender()
    meter = meter_of(model)
    meter.watch(watched=True)
    for _ in range(5):
        meter.step(batch(1))
    meter.step(batch(32, "prefill"))
    found = meter.sample(1, 10, 8)
    assert (found.n_decode_steps, found.n_decoded, found.n_prefilled, found.n_answers) == (5, 5, 32, 1)
    assert model.n_measured == 2  # one of each phase in a second
    assert found.step_ms == pytest.approx(10, abs=8)
    assert found.decode_tok_s is not None
    assert 30 < found.decode_tok_s <= 100
    cpu, gpu = found.devices
    assert (cpu.device, gpu.device) == ("numa0", "gpu0")
    assert cpu.token_ms == pytest.approx(0.75 * found.step_ms)
    assert gpu.waiting_ms == pytest.approx(0.75 * found.step_ms)
    assert cpu.working_percent == pytest.approx(3 * gpu.working_percent)
    assert 20 < cpu.working_percent <= 75.1
    # 1000 of weights and 24 of a state, 8 for each of 10 tokens before, 2 for each of the last 4.
    assert cpu.read_bytes_per_token == 1000 + 24 + 80 + 8
    assert cpu.read_bytes_per_s == pytest.approx(1112 / (cpu.token_ms * 1e-3))
    assert cpu.in_bytes_per_s is None
    assert gpu.in_bytes_per_s == pytest.approx(6 * 400 / found.period_s)
    assert gpu.out_bytes_per_s == pytest.approx(6 * 100 / found.period_s)
    assert [(one.device, one.kind, one.ms) for one in found.ops] == [("numa0", "experts expertsdown", 4.0)]
    assert (found.kv_used_tokens, found.kv_total_tokens, found.kv_bytes_per_token) == (10, 64, 8)


def test_a_period_without_steps_is_idle() -> None:
    meter = meter_of(Pretender())
    meter.watch(watched=True)
    meter.step(batch(2))
    meter.sample(0, 0, 0)
    time.sleep(0.02)
    found = meter.sample(0, 0, 0)
    assert (found.n_decoded, found.decode_tok_s, found.prefill_tok_s, found.step_ms) == (0, None, None, None)
    assert [one.working_percent for one in found.devices] == [0.0, 0.0]
    assert found.devices[0].token_ms is None
    assert found.period_s >= 0.02


def test_a_step_that_outlasts_readings_counts_in_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Pretender()
    meter = meter_of(model)
    meter.watch(watched=True)
    meter.step(batch(1))
    meter.sample(1, 0, 0)
    monkeypatch.setattr(model, "step", lambda _: time.sleep(0.5))
    step = threading.Thread(target=meter.step, args=(batch(1),))
    step.start()
    found = []
    for _ in range(3):
        time.sleep(0.1)
        found.append(meter.sample(1, 0, 0))
    step.join()
    last = meter.sample(0, 0, 0)
    assert all(one.n_decode_steps == 0 and one.devices[0].working_percent > 40 for one in found)
    assert (last.n_decode_steps, last.step_ms) == (1, pytest.approx(500, abs=100))
    assert all(one.devices[0].working_percent <= 75.1 for one in (*found, last))


def test_what_was_measured_counts_until_the_model_lies_elsewhere() -> None:
    model = Pretender()
    meter = meter_of(model)
    meter.watch(watched=True)
    meter.step(batch(1))
    assert meter.sample(1, 0, 0).ops
    model.placement = object()  # type: ignore[assignment]
    assert not meter.sample(1, 0, 0).ops


def test_nothing_is_measured_while_nobody_watches() -> None:
    model = Pretender()
    meter = meter_of(model)
    for _ in range(3):
        meter.step(batch(1))
    assert model.n_measured == 0
    assert meter.sample(0, 0, 0).n_decoded == 0


def test_rows_of_one_step_share_its_weights() -> None:
    meter = meter_of(Pretender())
    meter.watch(watched=True)
    meter.step(batch(3))
    assert meter.sample(3, 0, 0).devices[0].read_bytes_per_token == 1024 + 3 * 88


def counters(events: list[Event]) -> list[Counters]:
    return [one for one in events if isinstance(one, Counters)]


@pytest.mark.parametrize(("gpu", "placement", "devices"), [("none", "", {"numa0"}), ("emulate", "-ngl 1", {"numa0", "gpu0"})])
def test_a_real_model_tells_what_it_does(gpu: str, placement: str, devices: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if gpu != "none":
        pytest.importorskip("torch")
    monkeypatch.setenv("LAYERDECK_GPU", gpu)
    with Recorder() as recorder:
        path = str(golden(LLAMAS[0]).path)
        recorder.finished(LoadModel(new_id(), path, LoadOptions(n_threads=1, n_ctx=256, placement=placement)))
        watch = WatchSensors(new_id(), 0.1)
        recorder.finished(watch)
        recorder.wait_for(lambda events: len(counters(events)) >= 1)
        done = recorder.finished(
            Generate(new_id(), prompt="hello there", sampling=SamplingParams(max_tokens=48), ignore_eog=True)
        )
        n_steps = done.usage.n_generated - 1  # the first token comes from the prompt's step
        recorder.wait_for(lambda events: sum(one.sample.n_decoded for one in counters(events)) >= n_steps)
        found = [one.sample for one in counters(recorder.events)]
        assert sum(one.n_decoded for one in found) == n_steps
        assert sum(one.n_prefilled for one in found) == done.usage.n_prompt - done.usage.n_reused
        busy = next(one for one in found if one.n_decoded)
        assert {one.device for one in busy.devices} == devices
        for one in busy.devices:
            assert 0 <= one.working_percent <= 100
            assert one.token_ms is not None
            assert one.waiting_ms is not None
            assert one.token_ms + one.waiting_ms == pytest.approx(busy.step_ms)
            assert (one.read_bytes_per_token or 0) > 0
        assert busy.ops
        assert busy.trace is not None
        assert {span.device for span in busy.trace.spans} == devices
        assert abs(busy.trace.time_s - busy.time_s) < 5
        assert {one.device for one in busy.ops} == {"numa0"}
        cpu = next(one for one in busy.devices if one.device == "numa0")
        assert all((one.in_bytes_per_s or 0) > 0 for one in busy.devices if one.device == "gpu0")
        assert 0 < sum(one.ms for one in busy.ops) < 50 * (cpu.token_ms or 0) + 5
        times = [event.snapshot.time_s for event in recorder.events if isinstance(event, Sensors)]
        assert times == sorted(times)
        assert all(any(abs(one.time_s - at) < 1 for at in times) for one in found)
