"""Reads the machine once per call: processor, memory, disk. Never raises; what cannot be read is None or 0."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from engine.hardware.snapshot import CpuSample, HardwareSnapshot

_THERMAL_NAMES = ("coretemp", "k10temp", "zenpower", "cpu_thermal")


class Sampler:
    """Holds what stays the same between readings; processor use is measured since the reading before."""

    def __init__(self, root: Path = Path("/"), watched: Path | None = None) -> None:
        """root: where /proc and /sys lie. watched: a path on the disk whose free space is reported; None: the home folder."""
        self._root = root
        self._watched = watched or Path.home()
        self._cpu_name = cpu_name(root)
        self._process = psutil.Process()
        self._use()

    def sample(self) -> HardwareSnapshot:
        """The machine now."""
        used, total = self._memory()
        return HardwareSnapshot(
            time_s=time.monotonic(),
            cpu=CpuSample(self._cpu_name, self._use(), cpu_temperature(self._root)),
            ram_used_bytes=used,
            ram_total_bytes=total,
            process_bytes=self._process_bytes(),
            disk_free_bytes=self._disk_free(),
        )

    def _use(self) -> tuple[float, ...]:
        try:
            return tuple(min(max(float(one), 0.0), 100.0) for one in psutil.cpu_percent(percpu=True))
        except (OSError, psutil.Error, ValueError):
            return ()

    def _memory(self) -> tuple[int, int]:
        try:
            memory = psutil.virtual_memory()
        except (OSError, psutil.Error, ValueError):
            return 0, 0
        return int(memory.total - memory.available), int(memory.total)

    def _process_bytes(self) -> int:
        try:
            return int(self._process.memory_info().rss)
        except (OSError, psutil.Error):
            return 0

    def _disk_free(self) -> int | None:
        try:
            return int(psutil.disk_usage(str(self._watched)).free)
        except OSError:
            return None


def cpu_name(root: Path = Path("/")) -> str:
    """The processor's name as the kernel gives it, or `CPU`."""
    for line in _read(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return " ".join(value.split())
    return "CPU"


def cpu_temperature(root: Path = Path("/")) -> float | None:
    """Degrees Celsius of the hottest sensor of the processor, or None where there is none to read."""
    found = []
    try:
        monitors = sorted((root / "sys/class/hwmon").glob("hwmon*"))
    except OSError:
        return None
    for monitor in monitors:
        if _read(monitor / "name").strip() in _THERMAL_NAMES:
            found += [_celsius(path) for path in sorted(monitor.glob("temp*_input"))]
    return max((one for one in found if one is not None), default=None)


def _celsius(path: Path) -> float | None:
    text = _read(path).strip()
    if not text.lstrip("-").isdigit():
        return None
    value = int(text) / 1000.0
    # Sensors that are not wired up report -128, 0 or 255.
    return value if 0.0 < value < 150.0 else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
