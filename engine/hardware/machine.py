"""The machine that something is planned for: this one, or one that a file describes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from engine.hardware import sysfs
from engine.hardware.gpus import GpuInfo, find_gpus
from engine.hardware.topology import Topology
from engine.hardware.topology_read import read_topology, topology


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One node of memory with its cores. name: of its processor; read_gbps: of its memory, None where nobody tells; cpus: its
    processors that this process may use, empty where they are not told apart."""

    node: int
    name: str
    ram_bytes: int
    ram_free: int
    n_cores: int
    read_gbps: float | None = None
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Machine:
    """ram_bytes: all of its memory; ram_free: what can be taken of it now. problem: why its GPUs cannot be used, or "".

    nodes: at least one; where nothing is said of them, one with all of the memory. name: of a described one, "": this machine.
    """

    ram_bytes: int
    ram_free: int
    gpus: tuple[GpuInfo, ...]
    problem: str = ""
    nodes: tuple[NodeInfo, ...] = field(default=())
    name: str = ""

    def __post_init__(self) -> None:
        if not self.nodes:
            object.__setattr__(self, "nodes", (NodeInfo(0, "", self.ram_bytes, self.ram_free, os.cpu_count() or 1),))

    @property
    def node_numbers(self) -> tuple[int, ...]:
        """The numbers of its nodes."""
        return tuple(one.node for one in self.nodes)

    def node(self, number: int) -> NodeInfo | None:
        """The node of that number, if there is one."""
        return next((one for one in self.nodes if one.node == number), None)


def this_machine(env: Mapping[str, str] = os.environ, root: Path | None = None) -> Machine:
    """What this machine has now; GPUs even where they cannot be computed on, which `problem` says. root: see `live_root`.

    Raises:
        InvalidRequest: see `find_gpus`.
    """
    memory, gpus = psutil.virtual_memory(), find_gpus(env)
    ram, free = int(memory.total), int(memory.available)
    nodes = nodes_of(sysfs.live_root(), ram, free, topology()) if root is None else nodes_of(root, ram, free)
    return Machine(ram, free, gpus.found, gpus.problem, nodes)


def machine_fingerprint(machine: Machine) -> str:
    """Tells machines apart for which placements and rates are kept: their memories, cores and cards, not what is free of them."""
    parts = [f"{one.name} {one.ram_bytes >> 30} {one.n_cores}" for one in machine.nodes]
    parts += [f"{one.name} {(one.total_bytes or 0) >> 30} {one.emulated}" for one in machine.gpus]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def nodes_of(root: Path, ram_bytes: int, ram_free: int, there: Topology | None = None) -> tuple[NodeInfo, ...]:
    """The nodes with memory for this process, each with the cores that it may use; one with all of it where there are no two.

    Cores of a node without memory count to the node whose memory is nearest.

    there: the machine below `root`; None: read for this process."""
    there = read_topology(root, tuple(sorted(os.sched_getaffinity(0)))) if there is None else there
    allowed = frozenset(there.allowed_cpus)
    found = []
    for one in there.nodes:
        sizes = _meminfo(root / f"sys/devices/system/node/node{one.node}/meminfo")
        if one.allowed and sizes is not None and sizes[0]:
            near = [other for other in there.nodes if there.memory_of(other.node) == one.node]
            cpus = tuple(sorted(cpu for other in near for cpu in other.cpus if cpu in allowed))
            n_cores = sum(there.memory_of(core.node) == one.node for core in there.usable_cores)
            found.append(NodeInfo(one.node, "", *sizes, max(1, n_cores), cpus=cpus))
    if len(found) > 1:
        return tuple(found)
    # Of several nodes this process may use one: it has the memory of that, and of nothing else.
    ram, free = (min(ram_bytes, found[0].ram_bytes), min(ram_free, found[0].ram_free)) if found else (ram_bytes, ram_free)
    return (NodeInfo(0, "", ram, free, max(1, len(there.usable_cores)), cpus=there.allowed_cpus),)


def _meminfo(path: Path) -> tuple[int, int] | None:
    """(bytes, bytes that are free or hold cached files) of a node."""
    values: dict[str, int] = {}
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        words = line.split()
        if len(words) >= 4 and words[3].isdecimal():
            values[words[2].rstrip(":")] = int(words[3]) * 1024
    return values.get("MemTotal", 0), values.get("MemFree", 0) + values.get("FilePages", 0) - values.get("Shmem", 0)
