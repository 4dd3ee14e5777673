"""Reads the Topology from /proc and /sys below a root. What is absent or junk is guessed and told in `degraded`; nothing raises.

Formats: Documentation/ABI/stable/sysfs-devices-system-cpu and -node of the kernel.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from engine.hardware import sysfs
from engine.hardware.cgroups import read_limits
from engine.hardware.cpu_facts import read_facts
from engine.hardware.pci import read_gpus
from engine.hardware.topology import Core, CoreKind, L3Group, Node, Topology

_CPUS = "sys/devices/system/cpu"
_NODES = "sys/devices/system/node"
_MAX_THREADS = 8
"""Threads of one core on any processor that Linux runs on; a longer list is junk."""


def topology() -> Topology:
    """This machine, for this thread. Read once for each set of processors that it may run on."""
    return _live(sysfs.live_root(), tuple(sorted(os.sched_getaffinity(0))))


def forget_topology() -> None:
    """It is read again when it is asked for: processors are switched on and off while programs run."""
    _live.cache_clear()


@functools.lru_cache(maxsize=8)
def _live(root: Path, allowed: tuple[int, ...]) -> Topology:
    return read_topology(root, allowed)


def read_topology(root: Path, allowed: tuple[int, ...] | None = None) -> Topology:
    """The machine whose /proc and /sys lie below `root`. allowed: processors this process may use; None: as its status says."""
    degraded: list[str] = []
    # What the process runs on is there, whatever the files say.
    online = tuple(sorted({*_online(root, degraded), *(allowed or ())}))
    nodes = _nodes(root, online, degraded)
    node_of = {cpu: number for number, cpus in nodes.items() for cpu in cpus}
    threads = _threads(root, online, degraded)
    groups = _l3_groups(root, online, node_of, degraded)
    efficient = _efficient(root)
    cores, l3_groups = _ordered(root, threads, groups, node_of, efficient)
    limits, status = read_limits(root), sysfs.fields(root / "proc/self/status")
    may_run = _allowed(online, allowed, status.get("Cpus_allowed_list"), limits.cpus)
    return Topology(
        sockets=len({core.socket for core in cores}),
        nodes=_node_values(root, nodes, _allowed_nodes(status.get("Mems_allowed_list"), limits.nodes)),
        l3_groups=l3_groups,
        cores=cores,
        cpus=online,
        n_cpus=max(len(sysfs.cpus(root / _CPUS / "present") or ()), len(online)),
        allowed_cpus=may_run,
        quota_cores=limits.quota_cores,
        memory_limit_bytes=limits.memory_bytes,
        cgroup_version=limits.version,
        container=limits.container,
        gpus=read_gpus(root),
        facts=read_facts(root, online[0]),
        degraded=tuple(dict.fromkeys(degraded)),
    )


def _online(root: Path, degraded: list[str]) -> tuple[int, ...]:
    """Logical processors that are on; at least one."""
    listed = sysfs.cpus(root / _CPUS / "online")
    if listed:
        return listed
    degraded.append("the system does not list the processors that are on")
    counted = _cpus_of(root / "proc/stat", "cpu")
    return counted or _processors(root) or (0,)


def _cpus_of(path: Path, prefix: str) -> tuple[int, ...]:
    words = (line.split(maxsplit=1)[0] for line in sysfs.lines(path) if line.startswith(prefix))
    found = (sysfs.as_number(word.removeprefix(prefix)) for word in words)
    return tuple(sorted({one for one in found if one is not None and 0 <= one < 8192}))


def _processors(root: Path) -> tuple[int, ...]:
    pairs = (line.partition(":") for line in sysfs.lines(root / "proc/cpuinfo"))
    found = (sysfs.as_number(value.strip()) for key, _, value in pairs if key.strip() == "processor")
    return tuple(sorted({one for one in found if one is not None and 0 <= one < 8192}))


def _parted(online: tuple[int, ...], members: Mapping[int, Iterable[int]]) -> list[tuple[int, ...]]:
    """The processors in disjoint sets: those that name each other. Whatever the lists say, each is in exactly one."""
    sets, left = [], set(online)
    named = {cpu: frozenset(members.get(cpu, ())) for cpu in online}
    for cpu in online:
        if cpu in left:
            found = tuple(sorted({cpu} | {one for one in named[cpu] if one in left and cpu in named[one]}))
            left.difference_update(found)
            sets.append(found)
    return sets


def _threads(root: Path, online: tuple[int, ...], degraded: list[str]) -> list[tuple[int, ...]]:
    """Cores as the threads they run."""
    members: dict[int, tuple[int, ...]] = {}
    for cpu in online:
        folder = root / _CPUS / f"cpu{cpu}/topology"
        found = sysfs.cpus(folder / "core_cpus_list") or sysfs.cpus(folder / "thread_siblings_list")
        if found and cpu in found and len(found) <= _MAX_THREADS:
            members[cpu] = found
    if len(members) < len(online):
        degraded.append("the system does not tell which threads share a core; each counts as a core of its own")
    return _parted(online, members)


def _l3_groups(
    root: Path, online: tuple[int, ...], node_of: Mapping[int, int], degraded: list[str]
) -> list[tuple[tuple[int, ...], int | None]]:
    """(processors, bytes) of each L3 cache, none over two nodes. Where it is not told, the node's processors are one group."""
    members: dict[int, tuple[int, ...]] = {}
    sizes: dict[int, int | None] = {}
    for cpu in online:
        cache = _l3_folder(root / _CPUS / f"cpu{cpu}/cache")
        found = None if cache is None else sysfs.cpus(cache / "shared_cpu_list")
        if cache is not None and found and cpu in found:
            members[cpu], sizes[cpu] = found, _size(sysfs.text(cache / "size"))
    unknown = [cpu for cpu in online if cpu not in members]
    if unknown:
        degraded.append("the system does not tell which cores share a cache; those of a node count as one group")
        for cpu in unknown:
            members[cpu] = tuple(one for one in unknown if node_of[one] == node_of[cpu])
    within = {cpu: [one for one in found if node_of.get(one) == node_of[cpu]] for cpu, found in members.items()}
    return [(cpus, sizes.get(cpus[0])) for cpus in _parted(online, within)]


def _l3_folder(caches: Path) -> Path | None:
    usual = caches / "index3"
    if sysfs.number(usual / "level") == 3:
        return usual
    return next((path for _, path in sysfs.numbered(caches, "index") if sysfs.number(path / "level") == 3), None)


def _size(text: str | None) -> int | None:
    """`32768K` in bytes."""
    if not text:
        return None
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    value = sysfs.as_number(text.rstrip("KMG"))
    return value * unit if value is not None and value > 0 else None


def _nodes(root: Path, online: tuple[int, ...], degraded: list[str]) -> dict[int, tuple[int, ...]]:
    """Node -> its processors that are on; each processor is in exactly one."""
    found: dict[int, tuple[int, ...]] = {}
    left = set(online)
    for number, folder in sysfs.numbered(root / _NODES, "node"):
        listed = sysfs.cpus(folder / "cpulist")
        if listed is None:
            degraded.append(f"the processors of NUMA node {number} cannot be read")
        found[number] = tuple(cpu for cpu in listed or () if cpu in left)
        left.difference_update(found[number])
    if not found:
        degraded.append("the system does not tell of NUMA nodes; the machine counts as one")
        return {0: online}
    if left:
        # Without their own list, processors go to the first node that has some: one node for all, on most machines.
        home = next((number for number, cpus in found.items() if cpus), min(found))
        found[home] = tuple(sorted({*found[home], *left}))
        degraded.append(f"the node of some processors is unknown; they count to node {home}")
    return found


def _node_values(root: Path, nodes: Mapping[int, tuple[int, ...]], allowed: tuple[int, ...] | None) -> tuple[Node, ...]:
    values = []
    for number, cpus in nodes.items():
        folder = root / _NODES / f"node{number}"
        words = (sysfs.text(folder / "distance") or "").split()
        told = [sysfs.as_number(word) or 0 for word in words]
        if len(told) != len(nodes) or min(told) < 10:
            told = [10 if other == number else 20 for other in nodes]
        may_use = allowed is None or number in allowed
        values.append(Node(number, cpus, _memory_bytes(root, number, len(nodes)), tuple(told), may_use))
    return tuple(values)


def _memory_bytes(root: Path, number: int, n_nodes: int) -> int | None:
    for line in sysfs.lines(root / _NODES / f"node{number}/meminfo"):
        words = line.split()
        if len(words) >= 4 and words[2] == "MemTotal:":
            kib = sysfs.as_number(words[3])
            return None if kib is None or kib < 0 else kib << 10
    words = sysfs.fields(root / "proc/meminfo").get("MemTotal", "").split()
    kib = sysfs.as_number(words[0]) if words and n_nodes == 1 else None
    return None if kib is None or kib < 0 else kib << 10


def _efficient(root: Path) -> frozenset[int]:
    """Processors of the smaller kind, on machines that have two kinds."""
    large = sysfs.cpus(root / "sys/devices/cpu_core/cpus")
    small = (sysfs.cpus(root / f"sys/devices/{name}/cpus") or () for name in ("cpu_atom", "cpu_lowpower"))
    return frozenset(cpu for cpus in small for cpu in cpus) if large else frozenset()


def _ordered(
    root: Path,
    threads: list[tuple[int, ...]],
    groups: list[tuple[tuple[int, ...], int | None]],
    node_of: Mapping[int, int],
    efficient: frozenset[int],
) -> tuple[tuple[Core, ...], tuple[L3Group, ...]]:
    """Cores by node, L3 group and number, and the groups in the same order."""
    order = sorted(range(len(groups)), key=lambda i: (node_of[groups[i][0][0]], groups[i][0][0]))
    l3_of = {cpu: place for place, i in enumerate(order) for cpu in groups[i][0]}
    socket: Callable[[int], int] = functools.partial(_socket, root)
    cores = []
    for index, cpus in enumerate(sorted(threads, key=lambda cpus: (l3_of[cpus[0]], cpus[0]))):
        first = cpus[0]
        kind: CoreKind = "efficient" if first in efficient else "performance"
        cores.append(Core(index, cpus, socket(first), node_of[first], l3_of[first], kind))
    l3_groups = []
    for place, i in enumerate(order):
        members = tuple(core.index for core in cores if core.l3 == place)
        l3_groups.append(L3Group(place, node_of[groups[i][0][0]], members, groups[i][1]))
    return tuple(cores), tuple(l3_groups)


def _socket(root: Path, cpu: int) -> int:
    # Virtual machines say -1.
    return max(0, sysfs.number(root / _CPUS / f"cpu{cpu}/topology/physical_package_id") or 0)


def _allowed(
    online: tuple[int, ...], given: tuple[int, ...] | None, status: str | None, cpuset: tuple[int, ...]
) -> tuple[int, ...]:
    """What the process may run on: as it was given, else as the kernel says of it within its cpuset; never nothing."""
    if given is not None:
        return given
    told = sysfs.as_cpus(status) or online
    inside = set(told) & set(cpuset or told) & set(online)
    return tuple(sorted(inside)) or online


def _allowed_nodes(status: str | None, cpuset: tuple[int, ...]) -> tuple[int, ...] | None:
    return sysfs.as_cpus(status) or cpuset or None
