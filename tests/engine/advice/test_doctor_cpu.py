"""Rows about processors: each is well, warns, and does not know, from files of machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.advice.doctor.counters import Counters
from engine.advice.doctor.facts import ModelFacts
from tests.helpers import machines
from tests.helpers.doctoring import cpus, made, says

MODEL = Path("model.gguf")


def cpuinfo(flags: str) -> dict[str, str]:
    return {"proc/cpuinfo": f"processor : 0\nmodel name : Test\nflags : fpu {flags}\n\nprocessor : 1\nflags : fpu\n"}


def test_instruction_set(tmp_path: Path) -> None:
    assert says("D-CPU-1", tmp_path).status == "unknown"
    found = says("D-CPU-1", made(tmp_path, cpuinfo("avx2 fma f16c avx512f amx_int8")))
    assert (found.status, found.observed) == ("pass", "avx2 fma f16c avx512f amx_int8")
    found = says("D-CPU-1", made(tmp_path, cpuinfo("avx2 fma")))
    assert found.status == "fail"
    assert found.observed == "this processor lacks F16C"
    found = says("D-CPU-1", made(tmp_path, cpuinfo("sse hypervisor")))
    assert "the virtual machine shows no AVX2, FMA, F16C" in found.observed
    assert "host" in found.fixes[0].command


@pytest.mark.parametrize(
    ("n_workers", "tuned", "status"), [(0, False, "pass"), (4, False, "pass"), (8, False, "warn"), (8, True, "pass")]
)
def test_workers(n_workers: int, tuned: bool, status: str, tmp_path: Path) -> None:
    root = made(tmp_path, cpus(4, 2))
    found = says("D-CPU-2", root, model=ModelFacts(MODEL, n_workers=n_workers, tuned=tuned))
    assert found.status == status
    assert "4 cores with 8 threads" in found.observed


def test_cores_of_a_container(tmp_path: Path) -> None:
    found = says("D-CPU-3", machines.unpack("container_cpuset", tmp_path))
    assert found.status == "warn"
    assert "This container" in found.why
    assert "--cpuset-cpus" in found.fixes[0].command
    found = says("D-CPU-3", machines.unpack("laptop_6c", tmp_path))
    assert (found.status, found.observed) == ("pass", "6 of 6 cores")


def policy(driver: str, governor: str, preference: str = "") -> dict[str, str]:
    folder = "sys/devices/system/cpu/cpu0/cpufreq"
    files = {f"{folder}/scaling_driver": driver, f"{folder}/scaling_governor": governor}
    return files | ({f"{folder}/energy_performance_preference": preference} if preference else {})


@pytest.mark.parametrize(
    ("driver", "governor", "preference", "status"),
    [
        ("acpi-cpufreq", "powersave", "", "warn"),
        ("acpi-cpufreq", "schedutil", "", "pass"),
        ("amd-pstate-epp", "powersave", "balance_performance", "pass"),
        ("intel_pstate", "powersave", "power", "warn"),
        ("intel_pstate", "performance", "performance", "pass"),
    ],
)
def test_clock_policy(driver: str, governor: str, preference: str, status: str, tmp_path: Path) -> None:
    found = says("D-CPU-4", made(tmp_path, policy(driver, governor, preference)))
    assert found.status == status
    assert all(fix.undo for fix in found.fixes)
    assert bool(found.fixes) == (status == "warn")


def test_clock_policy_of_a_virtual_machine_is_not_known(tmp_path: Path) -> None:
    assert says("D-CPU-4", made(tmp_path, cpus(2))).status == "unknown"


def sensor(celsius: int, limit: int | None = None) -> dict[str, str]:
    files = {"sys/class/hwmon/hwmon0/name": "coretemp", "sys/class/hwmon/hwmon0/temp1_input": str(celsius * 1000)}
    return files | ({} if limit is None else {"sys/class/hwmon/hwmon0/temp1_crit": str(limit * 1000)})


def test_temperature(tmp_path: Path) -> None:
    assert says("D-CPU-5", tmp_path).status == "unknown"
    assert says("D-CPU-5", made(tmp_path, sensor(62, 100))).observed == "62 °C of 100 °C"
    assert says("D-CPU-5", made(tmp_path, sensor(96, 100))).status == "warn"
    made(tmp_path, sensor(62, 100) | {"sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "7"})
    found = says("D-CPU-5", tmp_path)
    assert (found.status, found.observed) == ("pass", "62 °C of 100 °C, clocks lowered 7 times since the start")
    assert says("D-CPU-5", tmp_path, before=Counters(0.0, throttled=3)).status == "warn"


def test_battery(tmp_path: Path) -> None:
    assert says("D-CPU-6", tmp_path).status == "n/a"
    made(tmp_path, {"sys/class/power_supply/BAT0/type": "Battery", "sys/class/power_supply/BAT0/status": "Discharging"})
    assert says("D-CPU-6", tmp_path).status == "warn"
    made(tmp_path, {"sys/class/power_supply/AC/online": "1"})
    assert says("D-CPU-6", tmp_path).status == "pass"


def test_time_taken_by_the_host(tmp_path: Path) -> None:
    assert says("D-CPU-7", tmp_path).status == "unknown"
    assert says("D-CPU-7", made(tmp_path, {"proc/stat": "cpu  900 0 0 0 0 0 0 100 0 0\n"})).status == "warn"
    found = says("D-CPU-7", made(tmp_path, {"proc/stat": "cpu  9900 0 0 0 0 0 0 100 0 0\n"}))
    assert (found.status, found.observed) == ("pass", "1.0 % since the start")
    busy = says("D-CPU-7", tmp_path, before=Counters(-100.0, ticks=9000, steal=0))
    assert (busy.status, busy.observed) == ("warn", "10.0 % now")
