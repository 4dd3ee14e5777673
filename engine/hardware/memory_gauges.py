"""The machine's memory, its pressure and its nodes, from /proc and /sys. Never raises; what is missing has a reason."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from engine.hardware import memory, sysfs
from engine.hardware.rates import Rates
from engine.hardware.snapshot import MemorySample, Missing, NodeSample, PressureSample
from engine.hardware.topology import Topology

LIMITS_S = 5.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

NO_PRESSURE = "this kernel does not measure pressure (psi=1 on its command line switches it on)"
NO_LIMIT = "no control group limits the memory of this program"
UNREADABLE = "the system does not tell it"
FIRST = "it is measured from the second reading on"


class MemoryGauges:
    """The memory of one machine and of this process in it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files = {
            name: str(root / "proc" / name) for name in ("meminfo", "vmstat", "self/stat", "self/status", "self/statm")
        }
        self._limits_due = 0.0
        self._limit: int | None = None
        self._limit_left: int | None = None
        self._rates = Rates()

    def read(self, now: float) -> tuple[int, int, MemorySample]:
        """(used, total, the rest), in bytes; 0 where the system does not tell. now: monotonic seconds."""
        kib = _kib(self._files["meminfo"])
        total, available = kib.get(b"MemTotal", 0), kib.get(b"MemAvailable")
        if now >= self._limits_due:
            self._limits_due = now + LIMITS_S
            limits = [one for one in memory.groups(self._root) if one[0] < total or not total]
            self._limit = min((limit for limit, _ in limits), default=None)
            self._limit_left = min((limit - used for limit, used in limits), default=None)
        left = [one for one in (available, self._limit_left) if one is not None]
        swap_total, swap_free = kib.get(b"SwapTotal"), kib.get(b"SwapFree")
        pages_in, pages_out = _of_lines(self._files["vmstat"], (b"pswpin", b"pswpout"))
        minor, major = self._faults()
        fields: dict[str, Any] = {
            "available_bytes": max(0, min(left)) if left else None,
            "limit_bytes": self._limit,
            "swap_total_bytes": swap_total,
            "swap_used_bytes": None if swap_total is None or swap_free is None else max(0, swap_total - swap_free),
            "swap_in_bytes_per_s": _times(self._rates.of("in", pages_in, now), PAGE_BYTES),
            "swap_out_bytes_per_s": _times(self._rates.of("out", pages_out, now), PAGE_BYTES),
            "process_swap_bytes": _kib(self._files["self/status"]).get(b"VmSwap"),
            "process_minor_faults_per_s": self._rates.of("minor", minor, now),
            "process_major_faults_per_s": self._rates.of("major", major, now),
        }
        counters = {"swap_in_bytes_per_s": pages_in, "swap_out_bytes_per_s": pages_out}
        counters |= {"process_minor_faults_per_s": minor, "process_major_faults_per_s": major}
        reasons = {"limit_bytes": NO_LIMIT} | {name: FIRST for name, value in counters.items() if value is not None}
        missing = tuple((name, reasons.get(name, UNREADABLE)) for name, value in fields.items() if value is None)
        used = total - available if available is not None else 0
        return max(0, used), total, MemorySample(**fields, missing=missing)

    def process_bytes(self) -> int:
        """What this process holds in memory, shared pages and mapped files too."""
        words = (sysfs.read(self._files["self/statm"]) or b"").split()
        return int(words[1]) * PAGE_BYTES if len(words) > 1 and words[1].isdigit() else 0

    def _faults(self) -> tuple[int | None, int | None]:
        """Minor and major faults of this process so far. The name in parentheses may hold anything."""
        words = (sysfs.read(self._files["self/stat"]) or b"").rpartition(b")")[2].split()
        if len(words) < 10 or not words[7].isdigit() or not words[9].isdigit():
            return None, None
        return int(words[7]), int(words[9])


class PressureGauges:
    """How much of the last 10 s something waited for a resource."""

    def __init__(self, root: Path) -> None:
        self._files = {name: str(root / "proc/pressure" / name) for name in ("cpu", "memory", "io")}

    def read(self) -> PressureSample:
        """Percent. Kernels may have the files and refuse to be read."""
        found: dict[str, float] = {}
        for name, path in self._files.items():
            for line in (sysfs.read(path) or b"").split(b"\n"):
                kind, _, rest = line.partition(b" avg10=")
                value = rest.partition(b" ")[0]
                field = f"{name}_{kind.decode('ascii', 'replace')}_percent"
                if field in _PRESSURES and value.replace(b".", b"", 1).isdigit():
                    found[field] = min(100.0, float(value))
        missing = tuple((name, NO_PRESSURE) for name in _PRESSURES if name not in found)
        return PressureSample(**found, missing=missing)


_PRESSURES = ("cpu_some_percent", "memory_some_percent", "memory_full_percent", "io_some_percent", "io_full_percent")


class NodeGauges:
    """The memory of each NUMA node; read every slow_s."""

    def __init__(self, root: Path, topology: Topology, slow_s: float) -> None:
        self._slow_s = slow_s
        folder = root / "sys/devices/system/node"
        self._files = [
            (node.node, str(folder / f"node{node.node}/meminfo"), str(folder / f"node{node.node}/numastat"))
            for node in topology.nodes
        ]
        self._due = 0.0
        self._rates = Rates()
        self._samples: tuple[NodeSample, ...] = ()

    def read(self, now: float) -> tuple[NodeSample, ...]:
        """In the order of the Topology."""
        if now >= self._due:
            self._due = now + self._slow_s
            self._samples = tuple(self._node(number, meminfo, numastat, now) for number, meminfo, numastat in self._files)
        return self._samples

    def _node(self, number: int, meminfo: str, numastat: str, now: float) -> NodeSample:
        # `Node 0 MemTotal:  263978752 kB`; MemUsed holds the file cache too, which is why it is not used.
        kib = _kib(meminfo, skip=2)
        total, free, files = kib.get(b"MemTotal"), kib.get(b"MemFree"), kib.get(b"FilePages")
        remote, foreign = _of_lines(numastat, (b"other_node", b"numa_foreign"))
        huge, huge_free = (kib.get(name) for name in (b"HugePages_Total", b"HugePages_Free"))
        fields: dict[str, Any] = {
            "total_bytes": total,
            "free_bytes": free,
            "file_cache_bytes": files,
            "used_bytes": None if total is None or free is None or files is None else max(0, total - free - files),
            "anonymous_bytes": kib.get(b"AnonPages"),
            "huge_bytes": None if huge is None else huge << 11,  # counted in pages of 2 MiB, and taken for KiB above
            "huge_free_bytes": None if huge_free is None else huge_free << 11,
            "remote_pages_per_s": self._rates.of(f"remote {number}", remote, now),
            "missed_pages_per_s": self._rates.of(f"missed {number}", foreign, now),
        }
        missing: Missing = tuple(
            (name, FIRST if name.endswith("_per_s") and remote is not None else UNREADABLE)
            for name, value in fields.items()
            if value is None
        )
        return NodeSample(number, **fields, missing=missing)


def _kib(path: str, skip: int = 0) -> dict[bytes, int]:
    """Bytes by name of lines `Name:  123 kB`, behind `skip` words."""
    found = {}
    for line in (sysfs.read(path) or b"").split(b"\n"):
        words = line.split(None, skip + 2)
        if len(words) > skip + 1 and words[skip].endswith(b":") and words[skip + 1].isdigit():
            found[words[skip][:-1]] = int(words[skip + 1]) << 10
    return found


def _of_lines(path: str, names: tuple[bytes, ...]) -> list[int | None]:
    """The numbers of lines `name 123`, in the order of names."""
    found: dict[bytes, int] = {}
    raw = sysfs.read(path) or b""
    for name in names:
        at = 0 if raw.startswith(name + b" ") else raw.find(b"\n" + name + b" ") + 1
        if at or raw.startswith(name + b" "):
            word = raw[at + len(name) + 1 :].split(None, 1)[:1]
            if word and word[0].isdigit():
                found[name] = int(word[0])
    return [found.get(name) for name in names]


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
