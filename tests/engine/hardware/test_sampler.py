"""A reading is plausible on this machine, right where the files are known; and a machine without sensors still gives one."""

from __future__ import annotations

import os
import random
import shutil
import time
import typing
from pathlib import Path

import psutil
import pytest

from engine.hardware.memory_gauges import NO_PRESSURE
from engine.hardware.rates import Rates
from engine.hardware.sampler import Sampler, cpu_name
from engine.hardware.snapshot import (
    CoreSample,
    CpuSample,
    DiskSample,
    GpuProcess,
    GpuSample,
    HardwareSnapshot,
    MemorySample,
    NodeSample,
    PressureSample,
    SensorCost,
    why,
)
from engine.hardware.thermal import cpu_temperature
from engine.hardware.work import DeviceWork, EngineSample, OpTime
from tests.helpers import machines


def test_a_reading_of_this_machine() -> None:
    sampler = Sampler()
    sampler.watch_file(Path(__file__))
    sampler.sample()
    time.sleep(0.05)
    snapshot = sampler.sample(1.0)
    assert len(snapshot.cpu.use_percent) == psutil.cpu_count()
    assert all(0 <= one <= 100 for one in snapshot.cpu.use_percent)
    assert 0 < snapshot.ram_used_bytes <= snapshot.ram_total_bytes == psutil.virtual_memory().total
    assert snapshot.process_bytes > 0
    assert snapshot.disk_free_bytes
    assert snapshot.cpu.name
    assert abs(snapshot.time_s - time.monotonic()) < 5
    assert [core.cpus for core in snapshot.cores] == [core.cpus for core in sampler.topology.cores]
    assert [node.node for node in snapshot.nodes] == [node.node for node in sampler.topology.nodes]
    assert (snapshot.memory.process_minor_faults_per_s or 0) >= 0
    assert snapshot.memory.available_bytes
    assert snapshot.disk.process_read_bytes_per_s is not None
    assert snapshot.cost is not None
    assert snapshot.cost.period_s == 1.0
    every_absence_has_a_reason(snapshot)


def every_absence_has_a_reason(snapshot: HardwareSnapshot) -> None:
    parts = (snapshot.cpu, snapshot.memory, snapshot.pressure, snapshot.disk, *snapshot.nodes, *snapshot.gpus)
    for part in parts:
        for name in type(part).__slots__:
            if name not in ("missing", "node") or (name == "node" and not part.missing):
                assert (getattr(part, name) is None) == bool(why(part.missing, name)), (type(part).__name__, name)


def test_use_is_of_the_time_between_readings(tmp_path: Path, unpacked: Path) -> None:
    root = tmp_path / "machine"
    shutil.copytree(machines.unpack("laptop_6c", unpacked), root)
    stat = root / "proc/stat"
    sampler = Sampler(root)
    head = "cpu  200 0 100 10000 100 0 0 50 0 0\n"
    stat.write_text(head + "".join(f"cpu{i} {10 + 10 * i} 0 10 {1100 - 10 * i} 0 0 0 0 0 0\n" for i in range(11)))
    snapshot = sampler.sample()
    assert snapshot.cpu.use_percent == pytest.approx([10.0 * i for i in range(11)])
    # Threads 0 and 6 share a core; thread 11 is off.
    assert [core.use_percent for core in snapshot.cores][:1] == [(0.0, pytest.approx(60.0))]
    assert len(snapshot.cores[5].use_percent) == 1
    assert snapshot.cpu.steal_percent == pytest.approx(100 * 50 / 250)
    assert snapshot.cpu.waiting_percent == pytest.approx(100 * 100 / 250)


def test_two_sockets(unpacked: Path) -> None:
    snapshot = Sampler(machines.unpack("epyc7b13_2s", unpacked)).sample()
    assert (len(snapshot.cores), len(snapshot.cpu.use_percent), len(snapshot.nodes)) == (128, 256, 2)
    first = snapshot.nodes[0]
    assert first.total_bytes == 263978752 << 10
    assert first.file_cache_bytes == 225000000 << 10
    assert first.used_bytes == (263978752 - 31000000 - 225000000) << 10
    assert snapshot.cpu.temperature_c == 71.25
    # Eight labels a socket for eight chiplets: each core has the temperature of its own.
    assert [snapshot.cores[i].temperature_c for i in (0, 7, 8, 63, 64)] == [62.5, 62.5, 63.0, 66.0, 44.0]
    assert {core.frequency_mhz for core in snapshot.cores} == {2450.0}
    assert "security" in why(snapshot.cpu.missing, "package_power_w")
    assert snapshot.pressure.memory_full_percent == 0.0


def test_energy_gives_power_also_where_the_counter_wraps(unpacked: Path, tmp_path: Path) -> None:
    root = tmp_path / "machine"
    shutil.copytree(machines.unpack("epyc9374f_nps1", unpacked), root)
    counter = root / "sys/class/powercap/intel-rapl:0/energy_uj"
    rates, most = Rates(), 65532610987
    assert rates.of("e", most - 1_000_000, 10.0, most) is None
    assert rates.of("e", 4_000_000, 20.0, most) == pytest.approx(500_000)
    sampler = Sampler(root)
    assert "second reading" in why(sampler.sample().cpu.missing, "package_power_w")
    counter.write_text(str(123456789 + 3_000_000_000))
    sampler._cpu._slow_due = 0.0
    assert (sampler.sample().cpu.package_power_w or 0) > 0


def test_a_container_sees_its_own_memory(unpacked: Path) -> None:
    memory = Sampler(machines.unpack("container_cpuset", unpacked)).sample().memory
    assert memory.limit_bytes == 64 << 30
    assert memory.available_bytes == (64 << 30) - (20 << 30)
    snapshot = Sampler(machines.unpack("container_cpuset", unpacked)).sample()
    assert why(snapshot.pressure.missing, "cpu_some_percent") == NO_PRESSURE


def test_an_empty_machine_has_no_values_and_no_error(tmp_path: Path) -> None:
    snapshot = Sampler(root=tmp_path, watched=tmp_path / "gone").sample()
    assert snapshot.cpu.temperature_c is None
    assert snapshot.cpu.name == "CPU"
    assert snapshot.cpu.use_percent == ()
    assert (snapshot.ram_used_bytes, snapshot.ram_total_bytes, snapshot.disk_free_bytes) == (0, 0, None)
    every_absence_has_a_reason(snapshot)


def test_damaged_files_are_no_error(unpacked: Path, tmp_path: Path) -> None:
    source, dice = machines.unpack("cxl_memory_only_node", unpacked), random.Random(5)
    for turn in range(3):
        root = tmp_path / str(turn)
        shutil.copytree(source, root)
        sampler = Sampler(root)
        files = [path for path in root.rglob("*") if path.is_file()]
        for path in dice.sample(files, len(files) // 3):
            path.unlink()
            if dice.random() < 0.6:
                path.write_bytes(
                    dice.choice((b"", b"\xff\x00", b"-1", b"cpu0 x y z", b"MemTotal: kB", b"Node 0 MemFree: -4 kB", b"9" * 40))
                )
        sampler._cpu._slow_due = 0.0
        every_absence_has_a_reason(sampler.sample())
        shutil.rmtree(root)


@pytest.mark.parametrize(("text", "expected"), [("61500\n", 61.5), ("-128000", None), ("junk", None), ("255000", None)])
def test_temperature_of_the_processor(tmp_path: Path, text: str, expected: float | None) -> None:
    monitor = tmp_path / "sys/class/hwmon/hwmon0"
    monitor.mkdir(parents=True)
    (monitor / "name").write_text("coretemp\n")
    (monitor / "temp1_input").write_text(text)
    assert cpu_temperature(tmp_path) == expected


def test_name_of_the_processor(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor : 0\nmodel name : Some   Chip 9\n")
    assert cpu_name(tmp_path) == "Some Chip 9"


def test_a_disk_that_is_gone_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object) -> None:
        raise OSError("gone")

    sampler = Sampler()
    monkeypatch.setattr(os, "statvfs", broken)
    assert sampler.sample().disk_free_bytes is None


UNITS = ("_bytes", "_percent", "_c", "_w", "_mhz", "_rpm", "_s", "_ms", "_per_s", "_per_token", "_tokens", "_tok_s")
NUMBERS = {
    *(
        "node",
        "index",
        "cpus",
        "performance_state",
        "slow_bits",
        "link_generation",
        "link_generation_max",
        "link_generation_card_max",
    ),
    *("link_width", "link_width_max", "link_replays", "ecc_errors", "nvlinks", "nvlinks_down", "pid", "ms", "prompt_done"),
}
"""Counts and numbers of things, which have no unit."""


def test_every_gauge_has_its_unit_in_its_name() -> None:
    values = (GpuSample, GpuProcess, NodeSample, CoreSample, CpuSample, PressureSample, DiskSample, MemorySample, SensorCost)
    for value in (*values, HardwareSnapshot, EngineSample, DeviceWork, OpTime):
        for name, kind in typing.get_type_hints(value).items():
            if {int, float} & {kind, *typing.get_args(kind)}:
                assert name.endswith(UNITS) or name.startswith("n_") or name in NUMBERS, f"{value.__name__}.{name}"
