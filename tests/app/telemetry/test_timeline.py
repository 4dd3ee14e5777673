"""The timeline: what it keeps, how it thins out, where it has gaps, and that it does not grow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.telemetry import keys
from app.telemetry.timeline import MAX_KEYS, Timeline
from engine.api.values import (
    CoreSample,
    CpuSample,
    DeviceWork,
    EngineSample,
    GpuSample,
    HardwareSnapshot,
    NodeSample,
    SensorCost,
)

GB = 10**9
KEY = keys.decode()


def snapshot(time_s: float, period_s: float = 1.0, **more: Any) -> HardwareSnapshot:
    cpu = CpuSample("EPYC", (10.0, 30.0), 61.0, package_power_w=120.0)
    return HardwareSnapshot(time_s, cpu, 8 * GB, 16 * GB, GB, cost=SensorCost(1.0, 1.0, period_s), **more)


def filled(values: list[float], span_s: float = 1800.0) -> Timeline:
    timeline = Timeline(span_s)
    for i, value in enumerate(values):
        timeline.push_values(1000.0 + i, {KEY: value})
    return timeline


def test_a_reading_by_name() -> None:
    cards = (
        GpuSample("GPU-a", "01:00.0", "RTX 4090", "nvidia", memory_used_bytes=20 * GB, power_w=150.0, temperature_c=58.0),
        GpuSample("GPU-b", "02:00.0", "RTX 3090", "nvidia", state="silent", problem="hangs", power_w=300.0, temperature_c=99.0),
    )
    cores = tuple(CoreSample(i, (i,), (10.0 * i,), 3000.0, 50.0 + i) for i in range(4))
    nodes = (NodeSample(0, used_bytes=5 * GB), NodeSample(1, used_bytes=6 * GB))
    work = EngineSample(1.0, 1.0, decode_tok_s=13.1, prefill_tok_s=212.0, devices=(DeviceWork("numa0", 70.0, token_ms=50.0),))
    timeline = Timeline(node_of_core={0: 0, 1: 0, 2: 1, 3: 1})
    timeline.push(snapshot(5.0, gpus=cards, nodes=nodes, cores=cores), work)
    latest = timeline.latest
    assert latest(keys.decode()) == 13.1
    assert latest(keys.prefill()) == 212.0
    assert latest(keys.gpu("GPU-a", "temperature_c")) == 58.0
    # What a silent card told last is not of now.
    assert latest(keys.gpu("GPU-b", "temperature_c")) is None
    assert latest(keys.vram_used()) == 20 * GB
    assert latest(keys.power()) == 270.0
    assert latest(keys.ram_used()) == 8 * GB
    assert latest(keys.node(1, "used_bytes")) == 6 * GB
    assert latest(keys.node(0, "use_percent")) == 5.0
    assert latest(keys.node(1, "temperature_c")) == 53.0
    assert latest(keys.device("numa0", "working_percent")) == 70.0
    assert latest(keys.device("numa0", "waiting_ms")) is None
    assert latest(keys.cpu("use_percent")) == 20.0
    assert latest("nonsense") is None


def test_names_come_apart_and_know_their_units() -> None:
    assert keys.split(keys.gpu("0000:01:00.0", "power_w")) == ("gpu", "0000:01:00.0", "power_w")
    assert keys.split(keys.cpu("temperature_c")) == ("cpu", "", "temperature_c")
    units = {keys.decode(): "tok/s", keys.first_token(): "s", keys.vram_used(): "bytes", keys.power(): "W"}
    units |= {keys.device("numa0", "read_bytes_per_s"): "bytes/s", keys.engine("step_ms"): "ms", keys.engine("n_answers"): ""}
    units |= {keys.gpu("a", "fan_percent"): "%", keys.node(0, "remote_pages_per_s"): "pages/s", keys.gpu("a", "margin_c"): "°C"}
    assert {key: keys.unit(key) for key in units} == units


def test_all_rows_where_they_fit() -> None:
    times, values = filled([1.0, 2.0, 3.0]).series(KEY, 60.0, 100)
    assert times.tolist() == [1000.0, 1001.0, 1002.0]
    assert values.tolist() == [1.0, 2.0, 3.0]
    times, values = filled([1.0, 2.0, 3.0]).series(KEY, 1.0, 100)
    assert values.tolist() == [2.0, 3.0]
    assert [len(part) for part in Timeline().series(KEY, 60.0, 100)] == [0, 0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1e6, width=32), min_size=10, max_size=400), st.integers(4, 60))
def test_thinning_keeps_extremes_and_order(values: list[float], n_points: int) -> None:
    times, found = filled(values).series(KEY, 400.0, n_points)
    assert len(times) == len(found) <= max(8, n_points) or len(values) <= n_points
    assert (np.diff(times) > 0).all()
    assert (times[0], times[-1]) == (1000.0, 1000.0 + len(values) - 1)
    assert np.nanmax(found) == pytest.approx(max(values), rel=1e-6)
    assert np.nanmin(found) == pytest.approx(min(values), rel=1e-6)


def test_the_same_rows_give_the_same_points_as_time_goes_on() -> None:
    rng = np.random.default_rng(1)
    values = rng.random(1200).tolist()
    before = filled(values[:1100]).series(KEY, 600.0, 60)
    after = filled(values[:1105]).series(KEY, 600.0, 60)
    shared = set(before[0].tolist()[2:-2])
    assert len(shared & set(after[0].tolist())) >= 0.9 * len(shared)


def test_gaps() -> None:
    timeline = Timeline()
    for time_s in (0.0, 1.0, 2.0, 10.0, 11.0):
        timeline.push(snapshot(time_s), EngineSample(time_s, 1.0, decode_tok_s=None if time_s == 1.0 else 5.0))
    times, values = timeline.series(KEY, 60.0, 100)
    assert times.tolist() == [0.0, 1.0, 2.0, 6.0, 10.0, 11.0]
    assert [math.isnan(value) for value in values] == [False, True, False, True, False, False]
    # Readings that are meant to be rare have none between them.
    rare = Timeline()
    for time_s in (0.0, 5.0, 10.0):
        rare.push(snapshot(time_s, period_s=5.0), None)
    assert rare.series(keys.power(), 60.0, 100)[1].tolist() == [120.0] * 3


def test_a_gap_stays_when_thinned() -> None:
    timeline = Timeline()
    for i in range(600):
        timeline.push_values(float(i if i < 300 else i + 300), {KEY: 1.0})
    _, values = timeline.series(KEY, 900.0, 60)
    assert np.isnan(values).any()


def test_readings_that_come_sooner_change_the_last_row() -> None:
    timeline = Timeline(60.0, 1.0)
    timeline.push_values(0.0, {KEY: 1.0})
    timeline.push_values(0.2, {KEY: 2.0, keys.power(): 7.0})
    timeline.push_values(0.95, {KEY: 3.0})
    assert timeline.series(KEY, 60.0, 10)[1].tolist() == [2.0, 3.0]
    # One that came late behind a newer one is no news.
    timeline.push_values(0.5, {KEY: 9.0})
    assert timeline.latest(KEY) == 3.0


def test_values_of_answers_hold_until_the_next() -> None:
    timeline = Timeline()
    timeline.push_values(0.0, {})
    timeline.note(keys.first_token(), 9.9)
    timeline.push_values(1.0, {})
    timeline.note(keys.first_token(), 4.0)
    assert timeline.series(keys.first_token(), 60.0, 10)[1].tolist() == pytest.approx([9.9, 4.0])


def test_peaks_and_means_are_of_the_span() -> None:
    timeline = filled([9.0, 1.0, 3.0])
    assert timeline.peak(KEY, 60.0) == 9.0
    assert timeline.peak(KEY, 1.5) == 3.0
    assert timeline.mean(KEY, 1.5) == 2.0
    assert timeline.peak("nonsense", 60.0) is None


def test_a_copy_stands_still() -> None:
    timeline = filled([1.0, 2.0])
    still = timeline.copy()
    timeline.push_values(2000.0, {KEY: 50.0})
    assert still.latest(KEY) == 2.0
    assert still.peak(KEY, 60.0) == 2.0


def test_it_is_a_ring_and_does_not_grow() -> None:
    timeline = Timeline(100.0, 1.0)
    for i in range(150):
        timeline.push_values(float(i), {KEY: float(i)})
    nbytes = timeline.nbytes
    for i in range(150, 5000):
        timeline.push_values(float(i), {KEY: float(i)})
    assert timeline.nbytes == nbytes
    times, values = timeline.series(KEY, 1000.0, 1000)
    assert times.tolist() == [float(i) for i in range(4899, 5000)]
    assert values.tolist() == times.tolist()
    strange = {keys.gpu(str(i), "power_w"): 1.0 for i in range(2 * MAX_KEYS)}
    timeline.push_values(5001.0, strange)
    assert len(timeline.keys) == MAX_KEYS
    assert timeline.latest(keys.gpu(str(2 * MAX_KEYS - 1), "power_w")) == 1.0
