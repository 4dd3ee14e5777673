"""Counters of the kernel that only grow: what they say twice tells what happens now from what once happened. Never raises."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.hardware import sysfs
from engine.hardware.pci import devices_folder


@dataclass(frozen=True, slots=True)
class Counters:
    """At one moment; None or absent where the system does not tell.

    throttled: times that processors lowered their clocks because of heat. busy, steal: ticks of all processors, steal: those that
    a virtual machine's host gave to others. swapped_in: pages. moved: pages that the kernel carried between memory nodes by
    itself. corrected, uncorrected: (memory controller, errors). link_errors: (PCI address, corrected errors).
    """

    time_s: float
    throttled: int | None = None
    ticks: int | None = None
    steal: int | None = None
    swapped_in: int | None = None
    moved: int | None = None
    corrected: tuple[tuple[str, int], ...] = ()
    uncorrected: tuple[tuple[str, int], ...] = ()
    link_errors: tuple[tuple[str, int], ...] = ()


def read_counters(root: Path = Path("/")) -> Counters:
    """The counters of the machine whose /proc and /sys lie below `root`."""
    vmstat = dict(_pairs(root / "proc/vmstat"))
    ticks, steal = _ticks(root)
    return Counters(
        time_s=time.monotonic(),
        throttled=_throttled(root),
        ticks=ticks,
        steal=steal,
        swapped_in=vmstat.get("pswpin"),
        moved=vmstat.get("numa_pages_migrated"),
        corrected=tuple(_memory_errors(root, "ce_count")),
        uncorrected=tuple(_memory_errors(root, "ue_count")),
        link_errors=tuple(_link_errors(root)),
    )


def _pairs(path: Path) -> Iterator[tuple[str, int]]:
    for line in sysfs.lines(path):
        key, _, value = line.partition(" ")
        amount = sysfs.as_number(value.strip())
        if amount is not None and amount >= 0:
            yield key, amount


def _ticks(root: Path) -> tuple[int | None, int | None]:
    for line in sysfs.lines(root / "proc/stat"):
        words = line.split()
        if words and words[0] == "cpu":
            # user nice system idle iowait irq softirq steal; guest time is part of user.
            values = [sysfs.as_number(word) for word in words[1:9]]
            known = [value for value in values if value is not None and value >= 0]
            if len(known) == 8:
                return sum(known), known[7]
    return None, None


def _throttled(root: Path) -> int | None:
    """Core by core; the counters of packages count the same once a core."""
    found = [
        sysfs.number(folder / "thermal_throttle/core_throttle_count")
        for _, folder in sysfs.numbered(root / "sys/devices/system/cpu", "cpu")
    ]
    known = [one for one in found if one is not None and one >= 0]
    return sum(known) if known else None


def _memory_errors(root: Path, name: str) -> Iterator[tuple[str, int]]:
    for number, folder in sysfs.numbered(root / "sys/devices/system/edac/mc", "mc"):
        errors = sysfs.number(folder / name)
        if errors is not None and errors >= 0:
            yield f"mc{number}", errors


def _link_errors(root: Path) -> Iterator[tuple[str, int]]:
    """Of each device that counts them; the last line of its file is the sum."""
    try:
        folders = sorted(devices_folder(root).iterdir())
    except OSError:
        return
    for folder in folders:
        for line in sysfs.lines(folder / "aer_dev_correctable"):
            key, _, value = line.partition(" ")
            errors = sysfs.as_number(value.strip())
            if key == "TOTAL_ERR_COR" and errors is not None and errors >= 0:
                yield folder.name, errors
