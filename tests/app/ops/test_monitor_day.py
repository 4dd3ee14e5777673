"""A day of readings through the monitors: no growth, and little time of the window's thread.

Some hours; a whole day with LAYERDECK_LONG=1.
"""

from __future__ import annotations

import gc
import os
import random
import resource
import time
from pathlib import Path

import pytest

from app.telemetry import keys
from engine.api.events import Counters, Sensors
from engine.api.values import (
    CoreSample,
    CpuSample,
    DeviceWork,
    EngineSample,
    GpuSample,
    HardwareSnapshot,
    NodeSample,
    RequestId,
    SensorCost,
    TokenTrace,
    TraceSpan,
)
from tests.app.ops.conftest import Bench

DAY = 86_400 if os.environ.get("LAYERDECK_LONG") else 12_000
GB = 10**9
SHARE = 0.005
"""Of one core, at one reading a second: what keeping it may take of the window's thread."""


def reading(at: float, rng: random.Random) -> tuple[HardwareSnapshot, EngineSample]:
    """128 cores in two nodes, four cards, a trace of 94 layers."""
    cards = tuple(
        GpuSample(
            f"GPU-{i}", f"0{i}:00.0", "RTX 4090", "nvidia", temperature_c=rng.uniform(40, 95), power_w=rng.uniform(50, 400),
            busy_percent=rng.uniform(0, 100), memory_used_bytes=int(rng.uniform(1, 24) * GB), memory_total_bytes=24 * GB,
            fan_percent=40.0, core_clock_mhz=2500.0,
        )
        for i in range(4)
    )  # fmt: skip
    use = tuple(rng.uniform(0, 100) for _ in range(128))
    cores = tuple(CoreSample(i, (i,), (use[i],), 3000.0) for i in range(128))
    nodes = tuple(NodeSample(i, 256 * GB, used_bytes=100 * GB, free_bytes=156 * GB) for i in range(2))
    cpu = CpuSample("EPYC", use, 61.0, package_power_w=200.0)
    snapshot = HardwareSnapshot(at, cpu, 338 * GB, 512 * GB, GB, gpus=cards, cores=cores, nodes=nodes, cost=SensorCost(1, 1, 1.0))
    spans = tuple(TraceSpan("numa0", "experts", i, i * 0.8, 0.7) for i in range(94))
    devices = tuple(DeviceWork(name, rng.uniform(0, 100), 20.0, 3.0, GB, 1e11) for name in ("numa0", "numa1", "gpu0", "gpu1"))
    return snapshot, EngineSample(at, 1.0, decode_tok_s=rng.uniform(10, 14), devices=devices, trace=TokenTrace(at, 76.3, spans))


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.timeout(900)
def test_a_day_of_readings_grows_nothing_and_costs_little(bench: Bench) -> None:
    rng = random.Random(1)
    monitors, settings = bench.monitors, bench.settings
    settings.set("monitors.psu_watts", 1600)
    monitors.set_watching("page", 1.0)
    bench.qtbot.waitUntil(lambda: monitors.now.snapshot is not None)
    readings = [reading(0.0, rng) for _ in range(50)]
    at, request = time.monotonic() + 10, RequestId("r")
    spent, before, nbytes = 0.0, 0, 0
    for i in range(DAY):
        snapshot, work = readings[i % len(readings)]
        object.__setattr__(snapshot, "time_s", at + i)
        began = time.thread_time()
        monitors._on_event(Sensors(request, snapshot))
        monitors._on_event(Counters(request, work))
        spent += time.thread_time() - began
        if i % 500 == 0:
            monitors.timeline.series(keys.decode(), 1800.0, 600)
            monitors.pause(True)
            monitors.pause(False)
            bench.qtbot.wait(1)
        if i == max(4000, DAY // 5):
            gc.collect()
            before, nbytes = resident(), monitors.timeline.nbytes
    gc.collect()
    grown = resident() - before
    assert monitors.timeline.nbytes == nbytes
    # 3 MB for what allocators keep, whatever the number of readings.
    assert grown < 3 << 20, grown
    assert spent / DAY < SHARE, f"{1e3 * spent / DAY:.2f} ms a reading"
    assert len(monitors.timeline.keys) < 300
