"""A reading is plausible on this machine, and a machine without sensors still gives one."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from engine.hardware.sampler import Sampler, cpu_name, cpu_temperature


def test_a_reading_of_this_machine() -> None:
    snapshot = Sampler().sample()
    assert len(snapshot.cpu.use_percent) == psutil.cpu_count()
    assert all(0 <= one <= 100 for one in snapshot.cpu.use_percent)
    assert 0 < snapshot.ram_used_bytes <= snapshot.ram_total_bytes
    assert snapshot.process_bytes > 0
    assert snapshot.cpu.name
    assert snapshot.time_s > 0


def test_an_empty_machine_has_no_values_and_no_error(tmp_path: Path) -> None:
    snapshot = Sampler(root=tmp_path, watched=tmp_path / "gone").sample()
    assert snapshot.cpu.temperature_c is None
    assert snapshot.cpu.name == "CPU"
    assert snapshot.disk_free_bytes is None


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


def test_broken_readers_do_not_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_kwargs: object) -> None:
        raise OSError("gone")

    sampler = Sampler()
    for name in ("cpu_percent", "virtual_memory", "disk_usage"):
        monkeypatch.setattr(psutil, name, broken)
    snapshot = sampler.sample()
    assert snapshot.cpu.use_percent == ()
    assert (snapshot.ram_used_bytes, snapshot.ram_total_bytes, snapshot.disk_free_bytes) == (0, 0, None)
