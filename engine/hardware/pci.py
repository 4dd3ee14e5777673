"""The graphics cards on the PCI bus, from /sys alone: no driver is asked and none is woken. Never raises."""

from __future__ import annotations

import re
from pathlib import Path

from engine.hardware import sysfs
from engine.hardware.snapshot import GpuMaker
from engine.hardware.topology import PciGpu

_MAKERS: dict[str, GpuMaker] = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_GENERATIONS = {"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "8": 3, "16.0": 4, "16": 4, "32.0": 5, "32": 5, "64.0": 6, "64": 6}
"""By gigatransfers a second, as kernels of several versions write them."""


def devices_folder(root: Path) -> Path:
    """Where a folder of each PCI device lies."""
    return root / "sys/bus/pci/devices"


def pci_address(text: str) -> str | None:
    """An address as /sys writes it, `0000:c1:00.0`; drivers write longer domains and capitals. None where it is none."""
    found = text.strip().lower()
    if not _ADDRESS.fullmatch(found):
        return None
    domain, _, rest = found.partition(":")
    return f"{domain[-4:] if domain.startswith('0000') or len(domain) == 4 else domain}:{rest}"


def read_gpus(root: Path = Path("/")) -> tuple[PciGpu, ...]:
    """Display adapters of NVIDIA, AMD and Intel, in the order of the bus."""
    folder = devices_folder(root)
    try:
        names = sorted(one.name for one in folder.iterdir())
    except OSError:
        return ()
    found = (_gpu(folder / name, name) for name in names if _ADDRESS.fullmatch(name))
    return tuple(one for one in found if one is not None)


def _gpu(device: Path, address: str) -> PciGpu | None:
    kind, maker = sysfs.text(device / "class") or "", _MAKERS.get(sysfs.text(device / "vendor") or "")
    if maker is None or not kind.startswith("0x03"):
        return None
    node = sysfs.number(device / "numa_node")
    return PciGpu(
        pci=address,
        maker=maker,
        device=sysfs.text(device / "device") or "",
        node=node if node is not None and node >= 0 else None,
        asleep=is_asleep(device),
        may_sleep=sysfs.text(device / "power/control") == "auto",
        link_generation=link_generation(device / "current_link_speed"),
        link_generation_max=link_generation(device / "max_link_speed"),
        link_width=link_width(device / "current_link_width"),
        link_width_max=link_width(device / "max_link_width"),
    )


def is_asleep(device: Path) -> bool:
    """Whether the system has switched the card off; any question to its driver would wake it."""
    return sysfs.text(device / "power/runtime_status") in ("suspended", "suspending")


def link_generation(path: Path) -> int | None:
    """Of a file that says `16.0 GT/s PCIe`; in sleep it says `Unknown`."""
    words = (sysfs.text(path) or "").split()
    return _GENERATIONS.get(words[0]) if words else None


def link_width(path: Path) -> int | None:
    """Lanes; None in sleep, when it says 0 or 255."""
    lanes = sysfs.number(path)
    return lanes if lanes is not None and 1 <= lanes <= 32 else None
