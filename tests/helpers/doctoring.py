"""Small machines made of a few files, and what a row of the doctor says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.advice.doctor.check import CheckResult
from engine.advice.doctor.context import Context
from engine.advice.doctor.table import CHECKS, run_checks

BY_ID = {check.id: check for check in CHECKS}


def made(root: Path, files: dict[str, str]) -> Path:
    """The root with these files below it: path -> text."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def says(id: str, root: Path, **facts: Any) -> CheckResult:
    """What one row says of a machine."""
    (found,) = run_checks(Context(root, **facts), (BY_ID[id],))
    return found


def cpus(n_cores: int, n_threads: int = 1, per_node: int = 0) -> dict[str, str]:
    """Files of a machine with so many cores; per_node: of them on each memory node, 0: one node."""
    n = n_cores * n_threads
    found = {"sys/devices/system/cpu/online": f"0-{n - 1}", "sys/devices/system/cpu/present": f"0-{n - 1}"}
    for cpu in range(n):
        siblings = ",".join(str(one) for one in range(cpu % n_cores, n, n_cores))
        found[f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"] = siblings
        found[f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"] = "0"
    n_nodes = n_cores // per_node if per_node else 1
    for node in range(n_nodes):
        mine = [cpu for cpu in range(n) if cpu % n_cores // (per_node or n_cores) == node]
        found[f"sys/devices/system/node/node{node}/cpulist"] = ",".join(map(str, mine))
        found[f"sys/devices/system/node/node{node}/meminfo"] = f"Node {node} MemTotal: 33554432 kB\n"
        found[f"sys/devices/system/node/node{node}/distance"] = " ".join("10" if i == node else "21" for i in range(n_nodes))
    return found
