"""What the monitors show and remember: who watches, standing still, judgement, figures of answers."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from app.telemetry import keys
from engine.api.commands import WatchSensors
from engine.api.events import Counters, Sensors
from engine.api.values import CpuSample, EngineSample, GpuSample, HardwareSnapshot, RequestId, TokenTrace
from tests.app.ops.conftest import Bench
from tests.helpers.fake_engine import Prefill, Tokens

ID = RequestId("sensors")
GPU = GpuSample("GPU-a", "01:00.0", "RTX 3090", "nvidia", temperature_c=83.0, power_w=300.0)


def snapshot(time_s: float, celsius: float = 60.0) -> HardwareSnapshot:
    return HardwareSnapshot(time_s, CpuSample("EPYC", (50.0,), celsius), 8, 16, 1, gpus=(GPU,))


def asked(bench: Bench) -> list[tuple[float, bool]]:
    return [(one.period_s, one.details) for one in bench.engine.sent(WatchSensors)]  # type: ignore[union-attr]


def read(bench: Bench, time_s: float, work: EngineSample | None = None, celsius: float = 60.0) -> None:
    """One reading arrives."""
    heard: list[HardwareSnapshot] = []
    bench.monitors.read.connect(heard.append)
    bench.engine.tell(Sensors(ID, snapshot(time_s, celsius)), *([] if work is None else [Counters(ID, work)]))
    bench.qtbot.waitUntil(lambda: any(one.time_s == time_s for one in heard))
    bench.monitors.read.disconnect(heard.append)


def start(bench: Bench) -> float:
    """Watches; the time of the first reading."""
    bench.monitors.set_watching("page", 1.0)
    bench.qtbot.waitUntil(lambda: bench.monitors.now.snapshot is not None)
    return time.monotonic() + 100


def test_the_shortest_wish_wins_and_nothing_is_read_for_nobody(bench: Bench) -> None:
    watch = bench.monitors.set_watching
    watch("panel", 1.0)
    watch("page", 0.5, details=True)
    watch("page", 0.5, details=True)
    watch("panel", 0.0)
    watch("page", 2.0)
    watch("page", 0.0)
    watch("page", 0.0)
    assert asked(bench) == [(1.0, False), (0.5, True), (2.0, False), (0.0, False)]
    assert bench.monitors.period_s == 0.0
    bench.qtbot.wait(120)
    n_rows = len(bench.monitors.timeline.series(keys.ram_used(), 1e9, 10**6)[0])
    bench.engine.tell(Sensors(ID, snapshot(time.monotonic() + 50)))
    bench.qtbot.wait(120)
    assert len(bench.monitors.timeline.series(keys.ram_used(), 1e9, 10**6)[0]) == n_rows


def test_a_reading_and_its_counters_are_told_once_together(bench: Bench) -> None:
    at = start(bench)
    told: list[float | None] = []
    bench.monitors.updated.connect(lambda: told.append(bench.monitors.timeline.latest(keys.decode())))
    for i in range(3):
        read(bench, at + i, EngineSample(at + i, 1.0, decode_tok_s=10.0 + i))
    assert told == [10.0, 11.0, 12.0]
    work = bench.monitors.work
    assert work is not None
    assert work.decode_tok_s == 12.0
    # Without a model there are no counters, and nobody waits for them.
    read(bench, at + 3)
    assert bench.monitors.work is None
    assert bench.monitors.timeline.latest(keys.decode()) is None


def test_the_last_trace_stays_while_the_model_idles_and_goes_with_it(bench: Bench) -> None:
    bench.load()
    at = start(bench)
    trace = TokenTrace(at, 76.3, ())
    read(bench, at, EngineSample(at, 1.0, trace=trace))
    read(bench, at + 1, EngineSample(at + 1, 1.0))
    assert bench.monitors.trace is trace
    bench.models.unload()
    bench.qtbot.waitUntil(lambda: bench.monitors.trace is None)
    assert bench.monitors.work is None


def test_what_is_shown_stands_still_while_the_rest_goes_on(bench: Bench) -> None:
    at = start(bench)
    read(bench, at, celsius=60.0)
    paused: list[bool] = []
    updates: list[int] = []
    bench.monitors.paused_changed.connect(paused.append)
    bench.monitors.pause(True)
    bench.monitors.updated.connect(lambda: updates.append(1))
    bench.monitors.pause(True)
    read(bench, at + 1, celsius=95.0)
    shown, now = bench.monitors.shown, bench.monitors.now
    assert shown.snapshot is not None
    assert now.snapshot is not None
    assert (shown.snapshot.cpu.temperature_c, now.snapshot.cpu.temperature_c) == (60.0, 95.0)
    assert (shown.healths["cpu"].level, now.healths["cpu"].level) == ("ok", "hot")
    assert shown.timeline.latest(keys.cpu("temperature_c")) == 60.0
    assert not updates
    bench.monitors.live()
    assert bench.monitors.timeline.latest(keys.cpu("temperature_c")) == 95.0
    # Nothing is missing of what came meanwhile.
    assert bench.monitors.timeline.series(keys.cpu("temperature_c"), 1.5, 10)[1].tolist() == [60.0, 95.0]
    assert (paused, updates) == ([True, False], [1])


def test_cards_are_judged_and_the_power_supply_once_it_is_told(bench: Bench) -> None:
    at = start(bench)
    read(bench, at)
    assert bench.monitors.healths["GPU-a"].level == "warm"
    assert bench.monitors.psu is None
    bench.settings.set("monitors.psu_watts", 310)
    psu = bench.monitors.psu
    assert psu is not None
    assert (psu.drawn_w, psu.is_tight) == (300.0, True)


def test_figures_of_answers(bench: Bench) -> None:
    bench.load()
    at = start(bench)
    read(bench, at)
    assert bench.monitors.first_token_p95_s is None
    bench.engine.answer = (Prefill(2114, 1057), Tokens(("a", "b")))
    bench.ask("q")
    read(bench, at + 1)
    latest = bench.monitors.timeline.latest
    assert latest(keys.first_token()) == pytest.approx(0.05)
    assert latest(keys.prefill()) == 250.0
    assert bench.monitors.last_usage is not None
    assert bench.monitors.last_usage.n_prompt == 2114
    assert bench.monitors.first_token_p95_s == 0.05


def test_a_card_that_is_lost_says_so(bench: Bench) -> None:
    at = start(bench)
    lost = replace(snapshot(at), gpus=(replace(GPU, state="lost", problem="it fell off the bus"),))
    bench.engine.tell(Sensors(ID, lost))
    bench.qtbot.waitUntil(lambda: bench.monitors.healths.get("GPU-a") is not None)
    assert bench.monitors.healths["GPU-a"].level == "lost"
    assert bench.monitors.timeline.latest(keys.gpu("GPU-a", "power_w")) is None
