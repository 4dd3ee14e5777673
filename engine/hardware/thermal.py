"""Temperatures of processors, from the kernel's hardware monitors. Never raises."""

from __future__ import annotations

import re
from pathlib import Path

from engine.hardware import sysfs

MONITORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
_CHIPLET = re.compile(r"Tccd(\d+)")


def cpu_monitors(root: Path) -> tuple[Path, ...]:
    """The folders of monitors that sit in processors, in the order of their numbers: that of sockets."""
    found = sysfs.numbered(root / "sys/class/hwmon", "hwmon")
    return tuple(path for _, path in found if sysfs.text(path / "name") in MONITORS)


def cpu_temperature(root: Path = Path("/")) -> float | None:
    """Degrees Celsius of the hottest sensor of the processor, or None where there is none to read."""
    found = [celsius(path) for monitor in cpu_monitors(root) for path in sorted(monitor.glob("temp*_input"))]
    return max((one for one in found if one is not None), default=None)


def celsius(path: Path | str) -> float | None:
    """A sensor's value. Those that are not wired up report -128, 0 or 255 degrees."""
    value = sysfs.number(path)
    return value / 1000 if value is not None and 0 < value < 150_000 else None


def chiplet_sensors(monitors: tuple[Path, ...]) -> tuple[Path, ...]:
    """The sensor of each chiplet, socket by socket in the order of their labels (Tccd1...); some parts have too few."""
    found = []
    for monitor in monitors:
        labelled = []
        for path in monitor.glob("temp*_label"):
            match = _CHIPLET.fullmatch(sysfs.text(path) or "")
            if match is not None:
                labelled.append((int(match[1]), path.with_name(path.name.replace("_label", "_input"))))
        found += [path for _, path in sorted(labelled)]
    return tuple(found)
