"""Reading from disks: by this process, and of the disk that a model lies on. Never raises; what is missing has a reason."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

from engine.hardware import sysfs
from engine.hardware.rates import Rates
from engine.hardware.snapshot import DiskSample

SECTOR_BYTES = 512
CEILING_S = 5.0
"""The most that a disk ever gave is taken over so long."""

NO_FILE = "no model is loaded"
NO_DEVICE = "the file system of the model does not tell its disk"
HIDDEN = "the system does not let this program see it"
FIRST = "it is measured from the second reading on"


class DiskGauges:
    """The disk of the watched file."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._io = str(root / "proc/self/io")
        self._rates = Rates()
        self._device: str | None = None
        self._stat: str | None = None
        self._why = NO_FILE
        self._recent: deque[tuple[float, int]] = deque()
        self._ceiling: float | None = None

    def watch(self, path: Path | None) -> None:
        """The disk of this file from now on."""
        self._device = self._stat = None
        self._why = NO_FILE
        self._recent.clear()
        self._rates = Rates()
        self._ceiling = None
        if path is None:
            return
        try:
            number = path.stat().st_dev
        except OSError:
            self._why = NO_DEVICE
            return
        folder = self._root / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
        # Volumes made of others (LVM, RAID, encryption) count for themselves.
        name = next((line.partition("=")[2] for line in sysfs.lines(folder / "uevent") if line.startswith("DEVNAME=")), None)
        if name is None:
            self._why = NO_DEVICE
            return
        self._device, self._stat = name, str(folder / "stat")

    def read(self, now: float) -> DiskSample:
        """now: monotonic seconds."""
        fields: dict[str, float | None] = {}
        reasons: dict[str, str] = {}
        read = next((line for line in sysfs.lines(self._io) if line.startswith("read_bytes:")), "")
        nbytes = sysfs.as_number(read.partition(":")[2].strip() or None)
        fields["process_read_bytes_per_s"] = self._rates.of("process", nbytes, now)
        reasons["process_read_bytes_per_s"] = HIDDEN if nbytes is None else FIRST
        sectors, busy_ms = self._counters()
        fields["device_read_bytes_per_s"] = self._rates.of("sectors", None if sectors is None else sectors * SECTOR_BYTES, now)
        busy = self._rates.of("busy", busy_ms, now)
        fields["device_busy_percent"] = None if busy is None else min(100.0, busy / 10)
        fields["ceiling_bytes_per_s"] = self._most(sectors, now)
        why = self._why if self._stat is None else (HIDDEN if sectors is None else FIRST)
        missing = tuple((name, reasons.get(name, why)) for name, value in fields.items() if value is None)
        if self._device is None:
            missing = (*missing, ("device", self._why))
        return DiskSample(device=self._device, missing=missing, **fields)

    def _counters(self) -> tuple[int | None, int | None]:
        """Sectors read and milliseconds busy: Documentation/block/stat.rst."""
        words = (sysfs.text(self._stat) or "").split() if self._stat is not None else []
        return (sysfs.as_number(words[2]), sysfs.as_number(words[9])) if len(words) > 9 else (None, None)

    def _most(self, sectors: int | None, now: float) -> float | None:
        if sectors is None:
            return self._ceiling
        recent = self._recent
        recent.append((now, sectors))
        while len(recent) > 2 and recent[1][0] <= now - CEILING_S:
            recent.popleft()
        if now - recent[0][0] >= CEILING_S:
            rate = max(0, sectors - recent[0][1]) * SECTOR_BYTES / (now - recent[0][0])
            self._ceiling = max(self._ceiling or 0.0, rate)
        return self._ceiling
