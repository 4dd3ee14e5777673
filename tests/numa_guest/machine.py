"""The machine that QEMU plays: its nodes, which may lack memory or processors, and its run until it says how it went."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from tests.numa_guest.parts import kernel_of

NODE_MIB = 768
ENDS = ("passed", "failed", "the denied part failed")


@dataclass(frozen=True, slots=True)
class Shape:
    """nodes: (processors as QEMU lists them, "": none; MiB of memory, 0: none). distances: by pairs of nodes, both ways."""

    nodes: tuple[tuple[str, int], ...]
    distances: tuple[tuple[int, int, int], ...]
    smp: str = "4,sockets=2,cores=2,threads=1"

    @property
    def arguments(self) -> tuple[str, ...]:
        """For QEMU."""
        found = ["-m", str(sum(mib for _, mib in self.nodes)), "-smp", self.smp]
        for i, (cpus, mib) in enumerate(self.nodes):
            parts = ["node", f"nodeid={i}", *([f"cpus={cpus}"] if cpus else []), *([f"memdev=m{i}"] if mib else [])]
            found += ["-object", f"memory-backend-ram,id=m{i},size={mib}M"] if mib else []
            found += ["-numa", ",".join(parts)]
        for one, other, far in self.distances:
            found += ["-numa", f"dist,src={one},dst={other},val={far}", "-numa", f"dist,src={other},dst={one},val={far}"]
        return tuple(found)


SHAPES: dict[str, Shape] = {
    "two": Shape((("0-1", NODE_MIB), ("2-3", NODE_MIB)), ((0, 1, 21),)),
    # Processors without memory of their own, and memory without processors, as of a card. Here the kernel numbers nodes with
    # processors first, whatever QEMU says, so that the first one always has some.
    "bare": Shape((("0-1", NODE_MIB), ("2-3", 0), ("", NODE_MIB)), ((0, 1, 16), (0, 2, 28), (1, 2, 32))),
    "first-without-memory": Shape(
        (("0", 0), ("1", NODE_MIB), ("2-3", NODE_MIB)), ((0, 1, 16), (1, 2, 21), (0, 2, 28)), "4,sockets=4,cores=1,threads=1"
    ),
}


def booted(root: Path, work: Path, shape: str = "two", part: str = "guest", limit_s: float = 900.0, **told: str) -> bool:
    """Whether a part (a module of this package) passes in a guest of a shape. told: environment of it. Prints what it prints."""
    words = {"GUEST_PART": part, "GUEST_SHAPE": shape} | told
    command = [
        str(root / "usr/bin/qemu-system-x86_64"),
        *("-accel", "tcg,thread=multi", "-cpu", "max", "-nographic", "-no-reboot", "-L", str(root / "usr/share/qemu")),
        *("-L", str(root / "usr/share/seabios"), "-net", "none"),
        *("-kernel", str(kernel_of(root)), "-initrd", str(work / "initrd.gz")),
        # What the kernel does not know it hands to the first program as its environment.
        *("-append", " ".join(["console=ttyS0 quiet panic=-1 psi=1 init=/init", *(f"{k}={v}" for k, v in words.items())])),
        *SHAPES[shape].arguments,
        *("-drive", f"file={work / 'disk.img'},format=raw,if=virtio,snapshot=on"),
    ]
    libraries = ":".join(str(root / name) for name in ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"))
    env = os.environ | {"LD_LIBRARY_PATH": libraries}
    last = ""
    with subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as guest:
        limit = threading.Timer(limit_s, guest.kill)
        limit.start()
        try:
            assert guest.stdout is not None
            for line in guest.stdout:
                sys.stdout.write(line)
                sys.stdout.flush()
                last = line.strip() or last
                if last in ENDS:
                    break
            guest.wait(20)
        except subprocess.TimeoutExpired:
            guest.kill()
        finally:
            limit.cancel()
    return last == "passed"
