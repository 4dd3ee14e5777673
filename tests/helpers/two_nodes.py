"""A machine with two NUMA nodes, by its files alone: one processor of this machine on each, all memory on the first in truth."""

from __future__ import annotations

from pathlib import Path


def two_nodes(root: Path, cpus: tuple[int, int] = (0, 1), kib: int = 32 << 20) -> Path:
    """Writes /proc and /sys of it below a folder, which LAYERDECK_ROOT may name."""
    online = ",".join(map(str, cpus))
    files = {
        "sys/devices/system/cpu/online": online,
        "sys/devices/system/cpu/present": online,
        "sys/devices/system/node/online": "0-1",
        "sys/devices/system/node/has_memory": "0-1",
        "proc/self/status": f"Cpus_allowed_list:\t{online}\nMems_allowed_list:\t0-1",
    }
    for node, cpu in enumerate(cpus):
        at = f"sys/devices/system/node/node{node}"
        files |= {
            f"{at}/cpulist": str(cpu),
            f"{at}/distance": "10 21" if node == 0 else "21 10",
            f"{at}/meminfo": "\n".join(
                f"Node {node} {name}: {value} kB"
                for name, value in (("MemTotal", kib), ("MemFree", kib), ("FilePages", 0), ("Shmem", 0))
            ),
        }
        core = f"sys/devices/system/cpu/cpu{cpu}/topology"
        files |= {f"{core}/core_cpus_list": str(cpu), f"{core}/physical_package_id": str(node), f"{core}/core_id": "0"}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="ascii")
    return root
