"""What the guest is made of: QEMU, a kernel and busybox from Debian, unpacked into a folder, and a disk with this checkout."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("qemu-system-x86", "busybox-static")
KERNEL = "linux-image-cloud-amd64"
MODULES = (
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "drivers/block/virtio_blk.ko",
)
NEEDED = ("apt-get", "apt-cache", "dpkg", "dpkg-query", "mke2fs", "ldd")
DISK_MIB = 640
APP = ("app/__init__.py", "app/ops/__init__.py", "app/ops/diagnosis_facts.py")
"""Of the application what the diagnosis needs, without Qt."""
_INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs dev /dev
for module in /modules/*.ko; do /bin/busybox insmod $module; done
/bin/busybox mount -t ext4 /dev/vda /disk
for folder in proc sys dev; do /bin/busybox mount --move /$folder /disk/$folder; done
export PYTHONPATH={root} PYTHONDONTWRITEBYTECODE=1 LAYERDECK_GPU=none HOME=/tmp
/bin/busybox chroot /disk {python} -W ignore -m tests.numa_guest.${{GUEST_PART:-guest}}
/bin/busybox poweroff -f
"""
"""The shell stays the first program: what other programs leave behind becomes its child, and not that of what is tested."""


class Missing(Exception):
    """What the guest needs is not to be had here; one sentence."""


def cache() -> Path:
    """Where everything is kept: LAYERDECK_NUMA_GUEST, else below the user's cache."""
    return Path(os.environ.get("LAYERDECK_NUMA_GUEST", Path.home() / ".cache/layerdeck-numa-guest"))


def unpacked(folder: Path) -> Path:
    """The root of the unpacked packages, fetched where they are not there yet.

    Raises:
        Missing: a tool, or the packages.
    """
    absent = [name for name in NEEDED if shutil.which(name) is None]
    if absent or sys.platform != "linux" or os.uname().machine != "x86_64":
        raise Missing(f"the guest needs Debian or Ubuntu on x86-64 with {', '.join(absent) or 'Linux'}")
    root, packages = folder / "root", folder / "packages"
    if (root / "complete").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    packages.mkdir(parents=True, exist_ok=True)
    kernel = [one for one in _depends(KERNEL, recurse=False) if one.startswith("linux-image-")]
    wanted = [*_absent({one for name in PACKAGES for one in (name, *_depends(name))}, PACKAGES), *kernel]
    fetched = subprocess.run(["apt-get", "download", *wanted], cwd=packages, capture_output=True, text=True, check=False)
    if fetched.returncode or not kernel:
        raise Missing(f"packages of the guest cannot be fetched: {fetched.stderr.strip()[-200:] or 'no kernel'}")
    for name in sorted(packages.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(name), str(root)], check=True)
    (root / "complete").touch()
    return root


def _depends(name: str, *, recurse: bool = True) -> list[str]:
    without = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
    command = ["apt-cache", "depends", *(["--recurse"] if recurse else []), *without, name]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    words = (line.split() for line in found.splitlines())
    return sorted({one[-1] for one in words if one and not one[-1].startswith("<")} - {name})


def _absent(names: set[str], always: Sequence[str]) -> list[str]:
    """Those that are not installed here: what is, is used as it is."""
    query = ["dpkg-query", "-W", "-f", "${Package} ${Status}\\n", *sorted(names)]
    told = subprocess.run(query, capture_output=True, text=True, check=False).stdout.splitlines()
    here = {line.split()[0] for line in told if line.endswith("ok installed")}
    command = ["apt-cache", "show", *sorted(set(names) - here)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    return sorted({*always, *(line.split()[1] for line in shown if line.startswith("Package: "))})


def kernel_of(root: Path) -> Path:
    """The kernel's image. Raises: Missing."""
    found = sorted((root / "boot").glob("vmlinuz-*"))
    if not found:
        raise Missing("the unpacked packages hold no kernel; empty the cache folder and try again")
    return found[-1]


def initrd(root: Path, to: Path) -> None:
    """The first file system: busybox and the modules that reach the disk."""
    modules = next((root / "lib/modules").iterdir()) / "kernel"
    entries: list[tuple[str, int, bytes]] = [(name, 0o040755, b"") for name in ("bin", "proc", "sys", "dev", "disk", "modules")]
    entries.append(("bin/busybox", 0o100755, (root / "bin/busybox").read_bytes()))
    entries += [(f"modules/{i}.ko", 0o100644, (modules / name).read_bytes()) for i, name in enumerate(MODULES)]
    entries.append(("init", 0o100755, _INIT.format(python=sys.executable, root=ROOT).encode()))
    to.write_bytes(gzip.compress(b"".join(_newc(i, *one) for i, one in enumerate([*entries, ("TRAILER!!!", 0, b"")])), 1))


def _newc(number: int, name: str, mode: int, data: bytes) -> bytes:
    """An entry of a cpio archive in the `newc` format that the kernel reads, see its initramfs buffer format."""
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)


def disk(to: Path, stage: Path, models: Sequence[Path], busybox: Path) -> None:
    """An ext4 image with Python, what the engine imports and this checkout, each where it is here, and some models in /models."""
    shutil.rmtree(stage, ignore_errors=True)
    for folder in ("proc", "sys", "dev", "tmp", "models"):
        (stage / folder).mkdir(parents=True)
    for name in ("engine", "kernels_pyx", "tests", "resources"):
        _copy(ROOT / name, stage, lambda folder, names: [one for one in names if one in ("__pycache__", "c", "app", "golden")])
    for name in APP:
        _copy(ROOT / name, stage)
    for path in models:
        shutil.copy(path, stage / "models")
    _python(stage)
    (stage / "bin").mkdir(exist_ok=True)
    shutil.copy(busybox, stage / "bin/busybox")
    to.unlink(missing_ok=True)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", str(stage), str(to), f"{DISK_MIB}M"], check=True)
    shutil.rmtree(stage)


def _python(stage: Path) -> None:
    import jinja2
    import markupsafe
    import numpy
    import platformdirs
    import psutil
    import tokenizers

    base = Path(sys.base_prefix).resolve()
    skip = ("site-packages", "test", "idlelib", "tkinter", "__pycache__", "ensurepip", "turtledemo", "config-*")
    library = f"lib/python{sys.version_info.major}.{sys.version_info.minor}"
    _copy(base / library, stage, shutil.ignore_patterns(*skip))
    for package in (numpy, psutil, platformdirs, jinja2, markupsafe, tokenizers):
        folder = Path(str(package.__file__)).parent
        _copy(folder, stage, shutil.ignore_patterns("tests", "__pycache__", "*.pyi"))
    libraries = Path(str(numpy.__file__)).parents[1] / "numpy.libs"
    if libraries.exists():
        _copy(libraries, stage)
    marker = Path(sys.prefix) / "pyvenv.cfg"
    if marker.exists():
        _copy(marker, stage)
    executable = Path(sys.executable)
    while executable.is_symlink():  # kept: Python finds its library by where they lead
        link = stage / executable.relative_to("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(executable.readlink())
        executable = Path(os.path.normpath(executable.parent / executable.readlink()))
    binaries = [executable, *stage.rglob("*.so"), *stage.rglob("*.so.*")]
    _copy(executable, stage)
    for path in _libraries(binaries):
        _copy(path, stage)


def _libraries(binaries: Iterable[Path]) -> set[Path]:
    found: set[Path] = set()
    for binary in binaries:
        told = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False).stdout
        for word in told.split():
            if word.startswith("/") and (path := Path(word)).exists() and not path.is_relative_to(binary.parent):
                found.add(path)
    return found


def _copy(path: Path, stage: Path, ignore: object = None) -> None:
    """To the same place below the stage; what links point to in their place."""
    to = stage / path.relative_to("/")
    if to.exists() or to.is_symlink():
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, to, symlinks=False, ignore=ignore, dirs_exist_ok=True)  # type: ignore[arg-type]
        return
    shutil.copy(path, to)
