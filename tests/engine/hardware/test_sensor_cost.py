"""What watching costs in processor time, and that it costs no more after a day."""

from __future__ import annotations

import gc
import os
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.hardware import gpu_watch
from engine.hardware.gpu_watch import GpuWatch
from engine.hardware.sampler import Sampler
from tests.helpers import machines
from tests.helpers.beside import BESIDE
from tests.helpers.nvml import Cards, build, wait_for

DAY = 86_400
"""Readings of a day at one a second."""
SOME = 20_000
"""Of them in a test; `LAYERDECK_SENSOR_READINGS` asks for more."""
SHARE = 0.005
"""Of one core, at one reading a second."""


@pytest.fixture
def machine_with_cards(
    unpacked: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Path, GpuWatch]]:
    """128 cores in 16 chiplets and 2 nodes; four cards, whose driver is beside the machine's files."""
    cards = Cards(tmp_path, build(tmp_path_factory.mktemp("nvml")), monkeypatch)
    monkeypatch.setattr(gpu_watch, "BUDGET_MS_PER_S", 1e6)  # as often as it is asked for, whatever answers take here
    watch = GpuWatch(cards.root)
    yield machines.unpack("epyc7b13_2s", unpacked), watch
    watch.close()


def cpu_s(pid: int | None) -> float:
    """Processor seconds of this process and the sensor process so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime + int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) * 1e-9


def resident(pid: int | None) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_reading_of_128_cores_and_4_cards_takes_half_a_percent_of_a_core(machine_with_cards: tuple[Path, GpuWatch]) -> None:
    root, watch = machine_with_cards
    sampler = Sampler(root, gpus=watch)
    watch.start(0.1)
    wait_for(watch, lambda found: len(found) == 4 and all(one.state == "ok" for one in found), 20)
    best = 1.0
    for _ in range(3):  # whoever shares the cores' caches makes it dearer, never cheaper
        before, began = cpu_s(watch.pid), time.monotonic()
        for n in range(1, 21):
            snapshot = sampler.sample(0.1)
            time.sleep(max(0.0, began + 0.1 * n - time.monotonic()))
        best = min(best, (cpu_s(watch.pid) - before) / 20)
    assert (len(snapshot.cores), len(snapshot.gpus)) == (128, 4)
    assert best < SHARE * BESIDE


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_day_of_readings_takes_no_more_memory(machine_with_cards: tuple[Path, GpuWatch], unpacked: Path) -> None:
    n = int(os.environ.get("LAYERDECK_SENSOR_READINGS", SOME))
    _, watch = machine_with_cards
    sampler = Sampler(machines.unpack("laptop_6c", unpacked), gpus=watch)
    watch.start(0.005)
    wait_for(watch, lambda found: len(found) == 4 and all(one.state == "ok" for one in found), 20)
    pids = (os.getpid(), watch.pid)
    for i in range(n):
        sampler.sample(1.0)
        if i == n // 5:
            gc.collect()
            before = [resident(pid) for pid in pids]
            open_files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208
    gc.collect()
    grown = [resident(pid) - earlier for pid, earlier in zip(pids, before, strict=True)]
    assert watch.pid == pids[1]
    # 2 MB for what allocators keep, whatever the number of readings.
    assert max(grown) < 2 << 20, grown
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == (open_files, threads)  # noqa: PTH208
