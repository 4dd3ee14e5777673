"""How the system runs its processors: instruction set, clock policy, energy counter, battery. Never raises."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from engine.hardware import sysfs
from engine.hardware.topology import CpuFacts

_SETS = (("avx512_bf16", "avx512_bf16"), ("avx512_vnni", "avx512_vnni"), ("avx512f", "avx512"), ("avx2", "avx2"))
"""(flag, what we call it), widest first."""


def read_facts(root: Path, cpu: int) -> CpuFacts:
    """The facts of the machine below `root`; the clock policy is that of processor number `cpu`."""
    policy = root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
    name, flags = _processor(root)
    balancing = sysfs.number(root / "proc/sys/kernel/numa_balancing")
    return CpuFacts(
        name=name,
        instruction_set=next((called for flag, called in _SETS if flag in flags), "none"),
        frequency_driver=sysfs.text(policy / "scaling_driver") or None,
        governor=sysfs.text(policy / "scaling_governor") or None,
        energy_preference=sysfs.text(policy / "energy_performance_preference") or None,
        numa_balancing=None if balancing is None else balancing > 0,
        on_battery=on_battery(root),
        package_power=package_power(root),
    )


def _processor(root: Path) -> tuple[str, frozenset[str]]:
    """Name and flags of the first processor: all have the same."""
    name, flags = "CPU", frozenset[str]()
    for line in sysfs.lines(root / "proc/cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            name = " ".join(value.split())
        elif key.strip() == "flags":
            flags = frozenset(value.split())
        elif not line.strip() and flags:
            break
    return name, flags


def on_battery(root: Path = Path("/")) -> bool:
    """Whether a battery is being emptied and no mains adapter is plugged in."""
    try:
        supplies = sorted((root / "sys/class/power_supply").iterdir())
    except OSError:
        return False
    if any(sysfs.text(one / "online") == "1" for one in supplies):
        return False
    return any(sysfs.text(one / "status") == "Discharging" for one in supplies)


def energy_zones(root: Path) -> tuple[Path, ...]:
    """The energy counter of each socket, without the parts of it that have their own."""
    try:
        names = sorted(one.name for one in (root / "sys/class/powercap").iterdir())
    except OSError:
        return ()
    zones = [root / "sys/class/powercap" / one for one in names if one.startswith("intel-rapl:") and one.count(":") == 1]
    # `psys` is the whole board, its sockets included.
    return tuple(one for one in zones if (sysfs.text(one / "name") or "").startswith("package"))


def package_power(root: Path) -> Literal["readable", "hidden", "absent"]:
    """Whether the energy counters of the sockets can be read; since kernel 5.10 root alone may (CVE-2020-8694)."""
    zones = energy_zones(root)
    if not zones:
        return "absent"
    return "readable" if all(readable(one / "energy_uj") for one in zones) else "hidden"


def readable(path: Path) -> bool:
    """Whether this process may read a file; one that nobody may read is hidden from root as well."""
    try:
        return bool(path.stat().st_mode & 0o444) and os.access(path, os.R_OK)
    except OSError:
        return False
