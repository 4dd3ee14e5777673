"""What /sys says of a card's way to memory: the slot it sits in, its windows, the address translation before it. Never raises."""

from __future__ import annotations

from pathlib import Path

from engine.hardware import sysfs
from engine.hardware.pci import devices_folder, link_width, pci_address

LANE_GBPS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s of one lane and direction by generation, after the line's coding (PCI Express Base Specification 6.0, 4.2)."""


def slot_width(root: Path, pci: str) -> int | None:
    """Lanes of the slot: what the bridge above the card offers; None where it is not told."""
    bridge = bridge_of(root, pci)
    return None if bridge is None else link_width(bridge / "max_link_width")


def bridge_of(root: Path, pci: str) -> Path | None:
    """The folder of the bridge above a device, if there is one."""
    try:
        parent = (devices_folder(root) / pci).resolve().parent
    except (OSError, RuntimeError):
        return None
    return parent if pci_address(parent.name) else None


def largest_window(root: Path, pci: str) -> int | None:
    """Bytes of the largest window into a device's memory (its BARs); None where they are not told."""
    sizes = []
    for line in sysfs.lines(devices_folder(root) / pci / "resource")[:6]:
        words = line.split()
        try:
            start, end = int(words[0], 16), int(words[1], 16)
        except (IndexError, ValueError):
            continue
        if end > start:
            sizes.append(end - start + 1)
    return max(sizes, default=None)


def iommu_words(root: Path) -> tuple[str, ...]:
    """What the kernel's command line says of address translation."""
    words = (sysfs.text(root / "proc/cmdline") or "").split()
    return tuple(word for word in words if word.split("=")[0] in ("iommu", "intel_iommu", "amd_iommu", "iommu.passthrough"))


def has_iommu(root: Path) -> bool | None:
    """Whether the kernel drives a unit that translates addresses of devices."""
    try:
        return any((root / "sys/class/iommu").iterdir())
    except OSError:
        return None


def translates(root: Path, pci: str) -> bool | None:
    """Whether addresses of this device are translated; None where it cannot be told."""
    kind = sysfs.text(devices_folder(root) / pci / "iommu_group/type")
    if kind:
        return kind != "identity"
    there = has_iommu(root)
    if there is not True:
        return there
    words = iommu_words(root)
    passes = ("iommu=pt", "iommu=off", "intel_iommu=off", "amd_iommu=off", "iommu.passthrough=1")
    return False if any(word in passes for word in words) else None
