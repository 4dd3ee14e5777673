"""How much memory this process may still take: what the machine has, and what control groups allow. Never raises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def free_bytes(root: Path = Path("/")) -> int:
    """Bytes that can be taken without anything being swapped or killed: free, or cached files. root: where /proc and /sys lie."""
    import psutil  # not with the module, which a window imports that asks for nothing yet

    return min(
        [psutil.virtual_memory().available, *(limit - used for limit, used in groups(root))],
    )


def total_bytes(root: Path = Path("/")) -> int:
    """Bytes of memory that this process can ever have."""
    import psutil

    return min([psutil.virtual_memory().total, *(limit for limit, _ in groups(root))])


def groups(root: Path) -> Iterator[tuple[int, int]]:
    """(limit, used without cached files) of each control group with a limit that this process is in, of both versions."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            top, limit, used, prefix = root / "sys/fs/cgroup", "memory.max", "memory.current", ""
        elif "memory" in controllers.split(","):
            top, limit, used, prefix = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"
        else:
            continue
        here = top / path.lstrip("/")
        while here.is_relative_to(top):
            allowed, taken = _read(here / limit).strip(), _read(here / used).strip()
            if allowed.isdecimal() and taken.isdecimal():  # `max`: no limit
                files = sum(_stat(here / "memory.stat", f"{prefix}{kind}_file") for kind in ("active", "inactive"))
                yield int(allowed), max(0, int(taken) - files)
            here = here.parent


def _stat(path: Path, name: str) -> int:
    for line in _read(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdecimal():
            return int(value)
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
