"""What control groups, of both versions, let this process use: processors, their time, memory. Never raises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.hardware import memory, sysfs

_UNLIMITED = 1 << 60
"""A limit of version 1 that is none reads as the largest number of pages."""

_CONTAINERS = ("docker", "kubepods", "lxc", "libpod", "containerd", "crio", "garden")


@dataclass(frozen=True, slots=True)
class Limits:
    """cpus, nodes: () where no cpuset says. quota_cores, memory_bytes: None: no limit. version: None without control groups."""

    cpus: tuple[int, ...]
    nodes: tuple[int, ...]
    quota_cores: float | None
    memory_bytes: int | None
    version: int | None
    container: bool


def read_limits(root: Path = Path("/")) -> Limits:
    """The limits of this process. root: where /proc and /sys lie."""
    entries = [line.split(":", 2) for line in sysfs.lines(root / "proc/self/cgroup")]
    named = [(one[1].split(","), one[2]) for one in entries if len(one) == 3]
    limits = [limit for limit, _ in memory.groups(root) if limit < _UNLIMITED]
    quotas = [*_quotas_v2(root, named), *_quotas_v1(root, named)]
    return Limits(
        cpus=_set(root, named, "cpus"),
        nodes=_set(root, named, "mems"),
        quota_cores=min(quotas, default=None),
        memory_bytes=min(limits, default=None),
        version=_version(named),
        container=_in_container(root, named),
    )


Named = list[tuple[list[str], str]]
"""(controllers, path) of the groups that the process is in; version 2 has no controllers."""


def _version(named: Named) -> int | None:
    if any(one != [""] and not one[0].startswith("name=") for one, _ in named):
        return 1
    return 2 if named else None


def _in_container(root: Path, named: Named) -> bool:
    if any((root / mark).exists() for mark in (".dockerenv", "run/.containerenv")):
        return True
    if any(word in path for _, path in named for word in _CONTAINERS):
        return True
    # The group at the top has no limits to set unless a namespace shows us a lower one as the top.
    return any(path == "/" for one, path in named if one == [""]) and (root / "sys/fs/cgroup/memory.max").exists()


def _levels(top: Path, path: str) -> Iterator[Path]:
    """The group's folder and those above it, as far as they are mounted; a container sees its own group as the top."""
    here = top / path.strip("/")
    if ".." in here.parts:
        here = top
    while here.is_relative_to(top):
        yield here
        here = here.parent


def _quotas_v2(root: Path, named: Named) -> Iterator[float]:
    for controllers, path in named:
        if controllers != [""]:
            continue
        for level in _levels(root / "sys/fs/cgroup", path):
            words = (sysfs.text(level / "cpu.max") or "").split()
            if len(words) == 2:
                yield from _cores(sysfs.as_number(words[0]), sysfs.as_number(words[1]))


def _quotas_v1(root: Path, named: Named) -> Iterator[float]:
    for top, path in _mounts(root, named, "cpu"):
        for level in _levels(top, path):
            yield from _cores(sysfs.number(level / "cpu.cfs_quota_us"), sysfs.number(level / "cpu.cfs_period_us"))


def _cores(quota_us: int | None, period_us: int | None) -> Iterator[float]:
    if quota_us is not None and period_us is not None and quota_us > 0 and period_us > 0:
        yield quota_us / period_us


def _mounts(root: Path, named: Named, controller: str) -> Iterator[tuple[Path, str]]:
    """Where a controller of version 1 is mounted, and the group's path there."""
    for controllers, path in named:
        if controller in controllers:
            for name in dict.fromkeys((",".join(controllers), controller)):
                yield root / "sys/fs/cgroup" / name, path


def _set(root: Path, named: Named, kind: str) -> tuple[int, ...]:
    """The processors or nodes of the cpuset, of the innermost group that says."""
    places = [(root / "sys/fs/cgroup", path, f"cpuset.{kind}.effective") for one, path in named if one == [""]]
    for top, path in _mounts(root, named, "cpuset"):
        places += [(top, path, f"cpuset.effective_{kind}"), (top, path, f"cpuset.{kind}")]
    for top, path, name in places:
        for level in _levels(top, path):
            found = sysfs.cpus(level / name)
            if found:
                return found
    return ()
