"""Reads the machine once per call: processor, memory, nodes, disk, and what is known of its cards. Never raises."""

from __future__ import annotations

import os
import time
from pathlib import Path

from engine.hardware.cpu_facts import read_facts
from engine.hardware.cpu_gauges import CpuGauges
from engine.hardware.disk_gauges import DiskGauges
from engine.hardware.gpu_watch import GpuWatch
from engine.hardware.memory_gauges import MemoryGauges, NodeGauges, PressureGauges
from engine.hardware.process_gauges import ProcessGauges
from engine.hardware.snapshot import HardwareSnapshot, SensorCost
from engine.hardware.topology import Topology
from engine.hardware.topology_read import read_topology, topology

LIVE = Path("/")
SLOW_S = 5.0


class Sampler:
    """Holds what stays the same between readings; rates and use are of the time since the reading before."""

    def __init__(
        self, root: Path = LIVE, watched: Path | None = None, gpus: GpuWatch | None = None, slow_s: float = SLOW_S
    ) -> None:
        """root: where /proc and /sys lie. watched: a path on the disk whose free space is reported; None: the home folder.

        slow_s: between readings of what changes slowly: nodes, clocks, temperatures, energy.
        """
        self.topology: Topology = topology() if root == LIVE else read_topology(root)
        self._gpus = gpus
        self._watched = watched or Path.home()
        self._cpu = CpuGauges(root, self.topology, slow_s)
        self._memory, self._pressure = MemoryGauges(root), PressureGauges(root)
        self._process = ProcessGauges(root)
        self._nodes, self._disk = NodeGauges(root, self.topology, slow_s), DiskGauges(root)

    def watch_file(self, path: Path | None) -> None:
        """The model whose disk is watched from now on."""
        self._disk.watch(path)

    def sample(self, period_s: float = 0.0) -> HardwareSnapshot:
        """The machine now. period_s: between readings, as it is told to others."""
        now, spent = time.monotonic(), time.thread_time()
        cpu, cores = self._cpu.read(now)
        used, total, memory = self._memory.read(now)
        nodes, pressure, disk = self._nodes.read(now), self._pressure.read(), self._disk.read(now)
        process = self._process.read(now, sum(cpu.use_percent) / 100 if cpu.use_percent else None)
        gpus = self._gpus.samples() if self._gpus is not None else ()
        free = self._disk_free()
        process_bytes = self._memory.process_bytes()
        return HardwareSnapshot(
            time_s=now,
            cpu=cpu,
            ram_used_bytes=used,
            ram_total_bytes=total,
            process_bytes=process_bytes,
            disk_free_bytes=free,
            gpus=gpus,
            gpu_problem=self._gpus.problem if self._gpus is not None else "",
            nodes=nodes,
            cores=cores,
            memory=memory,
            pressure=pressure,
            disk=disk,
            process=process,
            cost=SensorCost(
                gpu_ms=self._gpus.cost_ms if self._gpus is not None else None,
                cpu_ms=(time.thread_time() - spent) * 1e3,
                period_s=period_s,
                note=self._gpus.note if self._gpus is not None else "",
            ),
        )

    def _disk_free(self) -> int | None:
        try:
            found = os.statvfs(self._watched)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize


def cpu_name(root: Path = LIVE) -> str:
    """The processor's name as the kernel gives it, or `CPU`."""
    return read_facts(root, 0).name
