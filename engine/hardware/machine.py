"""The machine that something is planned for: this one, or one that a file describes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from engine.hardware import sysfs
from engine.hardware.gpus import GpuInfo, find_gpus


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
    return Machine(ram, free, gpus.found, gpus.problem, nodes_of(sysfs.live_root() if root is None else root, ram, free))


def machine_fingerprint(machine: Machine) -> str:
    """Tells machines apart for which placements and rates are kept: their memories, cores and cards, not what is free of them."""
    parts = [f"{one.name} {one.ram_bytes >> 30} {one.n_cores}" for one in machine.nodes]
    parts += [f"{one.name} {(one.total_bytes or 0) >> 30} {one.emulated}" for one in machine.gpus]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def nodes_of(root: Path, ram_bytes: int, ram_free: int) -> tuple[NodeInfo, ...]:
    """The nodes with memory that the system lists, with the cores this process may use; one with all of it where it lists no two.

    Cores of a node without memory count to the node whose memory is nearest.
    """
    allowed = os.sched_getaffinity(0)
    paths = sorted((root / "sys/devices/system/node").glob("node[0-9]*"), key=lambda one: int(one.name[4:]))
    sizes = {path: found for path in paths if (found := _meminfo(path / "meminfo")) is not None and found[0]}
    if len(sizes) < 2:
        return (NodeInfo(0, "", ram_bytes, ram_free, max(1, len(allowed))),)
    cpus: dict[Path, set[int]] = {path: set() for path in sizes}
    for path in paths:
        cpus[path if path in sizes else _nearest(path, paths, sizes)] |= _cpus(path / "cpulist") & allowed
    return tuple(
        NodeInfo(int(path.name[4:]), "", *found, max(1, len(cpus[path])), cpus=tuple(sorted(cpus[path])))
        for path, found in sizes.items()
    )


def _nearest(path: Path, paths: list[Path], among: Iterable[Path]) -> Path:
    """Of the nodes at some paths the one nearest to that at `path`; paths: of all, in whose order it lists distances."""
    try:
        words = (path / "distance").read_text().split()
    except OSError:
        words = []
    far = {other: int(word) for other, word in zip(paths, words, strict=False) if word.isdecimal()}
    return min(among, key=lambda one: far.get(one, 255))


def _meminfo(path: Path) -> tuple[int, int] | None:
    """(bytes, bytes that are free or hold cached files) of a node."""
    values: dict[str, int] = {}
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        words = line.split()
        if len(words) >= 4 and words[3].isdecimal():
            values[words[2].rstrip(":")] = int(words[3]) * 1024
    return values.get("MemTotal", 0), values.get("MemFree", 0) + values.get("FilePages", 0) - values.get("Shmem", 0)


def _cpus(path: Path) -> set[int]:
    try:
        text = path.read_text().strip()
    except OSError:
        return set()
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found
