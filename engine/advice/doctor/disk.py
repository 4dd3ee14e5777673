"""Rows about disks: the one that the model lies on, and the space for chats and downloads."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from engine.advice.doctor.check import Fix, Outcome, failed, gb, listed, passed, row, unknown, warned, without_object
from engine.advice.doctor.context import Context
from engine.hardware import sysfs
from engine.hardware.user_data import user_data_dir

GROUP = "Disks"
FEW_BYTES, LEAST_BYTES = 5_000_000_000, 500_000_000
NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "fuse.rclone", "ceph", "glusterfs", "9p", "afs", "davfs")
SLOW = {"fuseblk": "a Windows disk (NTFS) through a program of its own", "vfat": "a FAT disk", "drvfs": "a disk of Windows"}
COPY = Fix("", "copy the model to a local NVMe disk, and open it there", "delete the copy")
USB2_MBIT = 480
VIRTUAL = ("dm-", "md", "vd", "xvd", "nbd", "loop")
"""Disks made of others, or played by a host: what they say of themselves means nothing."""


@dataclass(frozen=True, slots=True)
class Mount:
    """point: where it is mounted. device: `259:1`, of the kernel. options: as it was mounted."""

    point: str
    device: str
    kind: str
    options: str


def mount_of(root: Path, path: Path) -> Mount | None:
    """The file system that a path of this machine lies on; None where it cannot be told (proc(5), mountinfo)."""
    found: Mount | None = None
    for line in sysfs.lines(root / "proc/self/mountinfo"):
        head, _, tail = line.partition(" - ")
        words, more = head.split(), tail.split()
        if len(words) < 6 or len(more) < 3:
            continue
        point = words[4].replace("\\040", " ").replace("\\134", "\\")
        # A later mount on the same place hides the earlier one.
        if path.is_relative_to(point) and (found is None or len(point) >= len(found.point)):
            found = Mount(point, words[2], more[0], f"{words[5]},{more[2]}")
    return found


def block_device(root: Path, number: str) -> Path | None:
    """The folder of the whole disk that a device is part of, from its numbers."""
    folder = root / "sys/dev/block" / number
    try:
        real = folder.resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    return real if (real / "queue").is_dir() else real.parent if (real.parent / "queue").is_dir() else None


@row("D-DSK-1", GROUP, "The model's disk")
def model_disk(context: Context) -> Outcome:
    """Loading reads the whole model once; mapped models depend on the disk for as long as they are used."""
    if context.model is None:
        return without_object("No model is chosen.")
    mount = mount_of(context.root, context.model.path)
    if mount is None:
        return unknown("The system does not tell which disk the model lies on.", "/proc/self/mountinfo")
    speed = context.snapshot.disk.ceiling_bytes_per_s if context.snapshot else None
    best = f", {gb(speed)}/s at best so far" if speed else ""
    evidence = "/proc/self/mountinfo, queue/rotational"
    if mount.kind in NETWORK and not ("drvfs" in mount.options or "aname=" in mount.options):
        why = "The model is on a network disk: loading waits for the network, and a break of it ends a mapped model."
        return warned(f"{mount.kind} at {mount.point}{best}", why, COPY, evidence=evidence)
    kind = "drvfs" if mount.kind == "9p" else mount.kind
    if kind in SLOW:
        return warned(
            f"{kind} at {mount.point}{best}", f"The model is on {SLOW[kind]}, which reads slowly.", COPY, evidence=evidence
        )
    disk = block_device(context.root, mount.device)
    if disk is None:
        return passed(f"{mount.kind} at {mount.point}{best}", "Its disk is not told, as in containers.", evidence=evidence)
    name = f"{disk.name} ({mount.kind}){best}"
    if _usb_mbit(disk) and (_usb_mbit(disk) or 0) <= USB2_MBIT:
        return warned(name, "The model is on a disk at a slow USB port: at most 40 MB a second.", COPY, evidence=evidence)
    if sysfs.number(disk / "queue/rotational") == 1 and not disk.name.startswith(VIRTUAL):
        return warned(name, "The model is on a turning disk: 100 to 250 MB a second at most.", COPY, evidence=evidence)
    return passed(name, evidence=evidence)


def _usb_mbit(disk: Path) -> int | None:
    """Megabits a second of the port that a disk is plugged into; None for other disks."""
    for folder in disk.parents:
        speed = sysfs.number(folder / "speed")
        if speed and (folder / "idVendor").exists():
            return speed
    return None


@row("D-DSK-2", GROUP, "Disk scheduler")
def scheduler(context: Context) -> Outcome:
    """NVMe disks have none from the start; reading a model in large pieces hardly depends on it."""
    chosen = []
    try:
        disks = sorted((context.root / "sys/block").iterdir())
    except OSError:
        disks = []
    for disk in disks:
        text = sysfs.text(disk / "queue/scheduler")
        if text and not disk.name.startswith(("loop", "ram", "zram", "sr")):
            chosen.append(f"{disk.name}: {next((w.strip('[]') for w in text.split() if w.startswith('[')), text)}")
    if not chosen:
        return unknown("The system does not tell.", "/sys/block/*/queue/scheduler")
    return passed(listed(chosen, 6), "Reading a model hardly depends on it.", evidence="/sys/block/*/queue/scheduler")


@row("D-DSK-3", GROUP, "Free space")
def free_space(context: Context) -> Outcome:
    """For chats, which must never fail to be written, and for downloads."""
    if not context.live:
        return unknown("It can only be told on the machine itself.")
    data = (context.app.data_folder if context.app else None) or user_data_dir(context.env)
    folders = [("chats", data)]
    folders += [("models", folder) for folder in (context.app.model_folders if context.app else ())]
    parts, least = [], None
    for what, folder in folders:
        free = _free_bytes(folder)
        if free is not None:
            parts.append(f"{gb(free)} for {what}")
            least = free if least is None else min(least, free)
    if least is None:
        return unknown("The system does not tell how much is free.", "statvfs(2)")
    found, fix = listed(list(dict.fromkeys(parts))), Fix("", "delete what is not needed, or move models to another disk", "")
    if least < LEAST_BYTES:
        return failed(found, "Chats may soon not be saved any more.", fix, evidence="statvfs(2)")
    if least < FEW_BYTES:
        return warned(found, "There is little room for models and chats.", fix, evidence="statvfs(2)")
    return passed(found, evidence="statvfs(2)")


def _free_bytes(folder: Path) -> int | None:
    """Of the file system that a folder lies on, or will lie on once it is made."""
    for place in (folder, *folder.parents):
        try:
            found = os.statvfs(place)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        return found.f_bavail * found.f_frsize
    return None
