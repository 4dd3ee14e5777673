"""A card of AMD's by the files of its driver, whole and in pieces."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.hardware.amd import AmdCard
from engine.hardware.gpu_watch import GpuWatch
from engine.hardware.snapshot import GpuSample, why
from tests.helpers.nvml import Cards, build, wait_for

FILES = {
    "vendor": "0x1002",
    "device": "0x744c",
    "class": "0x030000",
    "numa_node": "1",
    "unique_id": "8f3c1d2e4b5a6978",
    "product_name": "Radeon RX 7900 XTX",
    "gpu_busy_percent": "37",
    "mem_busy_percent": "12",
    "mem_info_vram_total": str(24 << 30),
    "mem_info_vram_used": str(5 << 30),
    "mem_info_gtt_total": str(64 << 30),
    "mem_info_gtt_used": str(1 << 30),
    "pp_dpm_sclk": "0: 500Mhz\n1: 1830Mhz *\n2: 2525Mhz",
    "pp_dpm_mclk": "0: 96Mhz\n1: 1249Mhz *",
    "current_link_speed": "16.0 GT/s PCIe",
    "current_link_width": "16",
    "max_link_speed": "16.0 GT/s PCIe",
    "max_link_width": "16",
    "hwmon/hwmon3/temp1_label": "edge",
    "hwmon/hwmon3/temp1_input": "51000",
    "hwmon/hwmon3/temp2_label": "junction",
    "hwmon/hwmon3/temp2_input": "66000",
    "hwmon/hwmon3/temp3_label": "mem",
    "hwmon/hwmon3/temp3_input": "72000",
    "hwmon/hwmon3/power1_average": "213000000",
    "hwmon/hwmon3/power1_cap": "327000000",
    "hwmon/hwmon3/power1_cap_default": "339000000",
    "hwmon/hwmon3/fan1_input": "1210",
    "hwmon/hwmon3/pwm1": "102",
    "hwmon/hwmon3/pwm1_max": "255",
    "power/runtime_status": "active",
}
ADDRESS = "0000:03:00.0"


@pytest.fixture
def card(tmp_path: Path) -> Path:
    device = tmp_path / "sys/bus/pci/devices" / ADDRESS
    for name, text in FILES.items():
        (device / name).parent.mkdir(parents=True, exist_ok=True)
        (device / name).write_text(text + "\n")
    return device


def test_all_that_the_driver_tells(card: Path, tmp_path: Path) -> None:
    watch = GpuWatch(tmp_path)
    watch.start(0.1)
    (one,) = wait_for(watch, lambda found: bool(found) and found[0].state == "ok", 20)
    watch.close()
    assert (one.key, one.name, one.maker, one.node) == ("8f3c1d2e4b5a6978", "Radeon RX 7900 XTX", "amd", 1)
    assert (one.busy_percent, one.memory_busy_percent) == (37, 12)
    assert (one.memory_total_bytes, one.memory_used_bytes, one.memory_free_bytes) == (24 << 30, 5 << 30, 19 << 30)
    assert (one.temperature_c, one.hotspot_temperature_c, one.memory_temperature_c) == (51, 66, 72)
    assert (one.power_w, one.power_limit_w, one.power_limit_default_w) == (213, 327, 339)
    assert (one.core_clock_mhz, one.core_clock_max_mhz, one.memory_clock_mhz) == (1830, 2525, 1249)
    assert (one.fan_rpm, one.fan_percent) == (1210, 40)
    assert (one.link_generation, one.link_width) == (4, 16)
    for name in GpuSample.__slots__:
        if name not in ("node", "missing"):
            assert (getattr(one, name) is None) == bool(why(one.missing, name)), name


def test_a_sleeping_card_is_not_read(card: Path, tmp_path: Path) -> None:
    (card / "power/runtime_status").write_text("suspended\n")
    watch = GpuWatch(tmp_path)
    watch.start(0.05)
    (one,) = wait_for(watch, lambda found: bool(found) and found[0].state == "asleep", 5)
    assert one.busy_percent is None
    assert watch.pid is None
    watch.close()


def test_a_card_of_nvidias_beside_it_is_let_go_to_sleep(
    card: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    Cards(tmp_path, build(tmp_path_factory.mktemp("nvml")), monkeypatch).become("gpus 1")
    other = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    (other / "power").mkdir(parents=True)
    for name, text in {
        "vendor": "0x10de",
        "class": "0x030200",
        "power/control": "auto",
        "power/runtime_status": "active",
    }.items():
        (other / name).write_text(text + "\n")
    watch = GpuWatch(tmp_path, rest_after_s=0.5)
    watch.adjust(in_use=True)
    watch.start(0.05)
    wait_for(watch, lambda found: len(found) == 2 and all(one.state == "ok" for one in found), 20)
    pid = watch.pid
    watch.adjust(in_use=False)
    found = wait_for(
        watch, lambda found: found[0].state == "resting" and watch.pid not in (pid, None) and found[1].age_s < 0.3, 20
    )
    assert [one.state for one in found] == ["resting", "ok"]
    watch.close()


@pytest.mark.parametrize("text", ["", "junk", "-5", "99999999999999999999999999", "1: Mhz *"])
def test_what_cannot_be_read_is_missing_with_a_reason(card: Path, tmp_path: Path, text: str) -> None:
    told = AmdCard(ADDRESS, tmp_path)
    for path in card.rglob("*"):
        if path.is_file() and path.name not in ("vendor", "class"):
            path.write_text(text)
    found = told.read()
    assert found["error"] is None
    assert not set(found["values"]) & set(found["missing"])
    assert "busy_percent" in found["missing"]
    assert AmdCard("0000:09:00.0", tmp_path).read()["error"] == 15
