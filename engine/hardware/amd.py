"""AMD's cards by the files of the kernel's driver; read in the sensor process, since some of them can take long.

Never `pcie_bw`, which sleeps for a second in the kernel. Files: Documentation/gpu/amdgpu/thermal.rst and driver-misc.rst.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from engine.hardware import sysfs
from engine.hardware.pci import devices_folder, link_generation, link_width

_NOT_TOLD = "the driver of this card does not tell"
_LABELS = {"edge": "temperature_c", "junction": "hotspot_temperature_c", "mem": "memory_temperature_c"}


class AmdCard:
    """One card, by its PCI address."""

    def __init__(self, pci: str, root: Path = Path("/")) -> None:
        self.pci = pci
        device = devices_folder(root) / pci
        self._device = device if (device / "mem_info_vram_total").exists() else _drm_device(root, pci) or device
        self._monitor = next((path for _, path in sysfs.numbered(self._device / "hwmon", "hwmon")), None)
        self._upstream = _bridge(device)
        self.name = sysfs.text(self._device / "product_name") or "AMD GPU"
        self.uuid = sysfs.text(self._device / "unique_id") or pci

    def read(self) -> dict[str, Any]:
        """values and missing by field, as `nvml.Card` gives them."""
        values: dict[str, Any] = {}
        for field, ask in self._fields().items():
            found = ask()
            if found is not None:
                values[field] = found
        if "memory_total_bytes" in values and "memory_used_bytes" in values:
            values["memory_free_bytes"] = max(0, values["memory_total_bytes"] - values["memory_used_bytes"])
        missing = {field: _NOT_TOLD for field in (*self._fields(), "memory_free_bytes") if field not in values}
        return {"values": values, "missing": missing, "error": None if self._device.exists() else 15}

    def _fields(self) -> dict[str, Callable[[], Any]]:
        return {
            "busy_percent": lambda: _within(sysfs.number(self._device / "gpu_busy_percent"), 100),
            "memory_busy_percent": lambda: _within(sysfs.number(self._device / "mem_busy_percent"), 100),
            "memory_total_bytes": lambda: self._memory("total"),
            "memory_used_bytes": lambda: self._memory("used"),
            **{field: partial(self._temperature, label) for label, field in _LABELS.items()},
            "power_w": lambda: self._millionths("power1_average") or self._millionths("power1_input"),
            "power_limit_w": lambda: self._millionths("power1_cap"),
            "power_limit_default_w": lambda: self._millionths("power1_cap_default"),
            "fan_rpm": lambda: self._of_monitor("fan1_input"),
            "fan_percent": self._fan_percent,
            "core_clock_mhz": lambda: _clock(self._device / "pp_dpm_sclk", chosen=True),
            "core_clock_max_mhz": lambda: _clock(self._device / "pp_dpm_sclk", chosen=False),
            "memory_clock_mhz": lambda: _clock(self._device / "pp_dpm_mclk", chosen=True),
            "memory_clock_max_mhz": lambda: _clock(self._device / "pp_dpm_mclk", chosen=False),
            "link_generation": lambda: link_generation(self._upstream / "current_link_speed"),
            "link_generation_max": lambda: link_generation(self._upstream / "max_link_speed"),
            "link_width": lambda: link_width(self._upstream / "current_link_width"),
            "link_width_max": lambda: link_width(self._upstream / "max_link_width"),
        }

    def _memory(self, which: str) -> int | None:
        """An integrated card carves a little out of the machine's memory, and takes the rest of what it uses through GTT."""
        own = _within(sysfs.number(self._device / f"mem_info_vram_{which}"), 1 << 60)
        total = sysfs.number(self._device / "mem_info_vram_total") or 0
        borrowed = _within(sysfs.number(self._device / f"mem_info_gtt_{which}"), 1 << 60)
        if own is None or total > 4 << 30:
            return own
        return own + (borrowed or 0)

    def _of_monitor(self, name: str) -> int | None:
        return None if self._monitor is None else _within(sysfs.number(self._monitor / name), 1 << 40)

    def _millionths(self, name: str) -> float | None:
        found = self._of_monitor(name)
        return None if found is None else found / 1e6

    def _temperature(self, label: str) -> float | None:
        if self._monitor is None:
            return None
        for i in range(1, 5):
            if sysfs.text(self._monitor / f"temp{i}_label") == label:
                found = sysfs.number(self._monitor / f"temp{i}_input")
                return None if found is None or not -40_000 <= found <= 200_000 else found / 1000
        return None

    def _fan_percent(self) -> float | None:
        duty = self._of_monitor("pwm1")
        most = self._of_monitor("pwm1_max") or 255
        return None if duty is None else min(100.0, 100.0 * duty / most)


def _within(value: int | None, most: int) -> int | None:
    return value if value is not None and 0 <= value <= most else None


def _clock(path: Path, *, chosen: bool) -> int | None:
    """MHz of the state with the star, or the highest one: `2: 2420Mhz *`."""
    found = []
    for line in sysfs.lines(path):
        words = line.split()
        mhz = sysfs.as_number(words[1].lower().removesuffix("mhz")) if len(words) >= 2 else None
        if mhz is not None and (not chosen or line.endswith("*")):
            found.append(mhz)
    return max(found, default=None)


def _bridge(device: Path) -> Path:
    """Where the slot's link is told: a card of its own shows the link inside it, one or two bridges up is the slot's."""
    try:
        here = device.resolve()
    except OSError:
        return device
    while (here.parent / "current_link_speed").exists() and sysfs.text(here.parent / "vendor") == "0x1002":
        here = here.parent
    return here


def _drm_device(root: Path, pci: str) -> Path | None:
    """The card's folder below /sys/class/drm; where it does not lead to a PCI address, the only one of AMD's."""
    found = []
    for _, card in sysfs.numbered(root / "sys/class/drm", "card"):
        device = card / "device"
        try:
            if device.resolve().name == pci:
                return device
        except OSError:
            continue
        if sysfs.text(device / "vendor") == "0x1002" and not device.is_symlink():
            found.append(device)
    return found[0] if len(found) == 1 else None
