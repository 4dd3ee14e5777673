"""`python -m tests.numa_guest`: fetches, builds and boots the guest. Returns 0 where it passed, or cannot be had here."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.helpers.runs import write_model
from tests.numa_guest.parts import Missing, cache, disk, initrd, kernel_of, unpacked

LIMIT_S = 900
NODE_MIB = 768
COLD_BYTES = 24 << 20


def main() -> int:
    """See the module."""
    folder = cache()
    try:
        root = unpacked(folder)
    except Missing as why:
        sys.stderr.write(f"skipped: {why}\n")
        return 0
    with tempfile.TemporaryDirectory(dir=folder) as made:
        work = Path(made)
        initrd(root, work / "initrd.gz")
        disk(work / "disk.img", work / "stage", _models(work), root / "bin/busybox")
        return _booted(root, work)


def _models(work: Path) -> list[Path]:
    """A mixture of experts of some megabytes, and files that nobody has read when the guest starts."""
    model = write_model(work / "moe.gguf", quant="F16", n_embd=128, n_ff=768, n_experts=8, n_ctx=512)
    rng, cold = np.random.default_rng(1), []
    for i in range(3):
        cold.append(work / f"cold{i}.bin")
        cold[-1].write_bytes(rng.bytes(COLD_BYTES))
    return [model, *cold]


def _booted(root: Path, work: Path) -> int:
    command = [
        str(root / "usr/bin/qemu-system-x86_64"),
        *("-accel", "tcg,thread=multi", "-cpu", "max", "-nographic", "-no-reboot", "-L", str(root / "usr/share/qemu")),
        *("-L", str(root / "usr/share/seabios"), "-net", "none"),
        *("-kernel", str(kernel_of(root)), "-initrd", str(work / "initrd.gz")),
        *("-append", "console=ttyS0 quiet panic=-1 init=/init"),
        *("-m", str(2 * NODE_MIB), "-smp", "4,sockets=2,cores=2,threads=1"),
        *("-object", f"memory-backend-ram,id=m0,size={NODE_MIB}M", "-object", f"memory-backend-ram,id=m1,size={NODE_MIB}M"),
        *("-numa", "node,nodeid=0,cpus=0-1,memdev=m0", "-numa", "node,nodeid=1,cpus=2-3,memdev=m1"),
        *("-numa", "dist,src=0,dst=1,val=21", "-drive", f"file={work / 'disk.img'},format=raw,if=virtio"),
    ]
    libraries = ":".join(str(root / name) for name in ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"))
    env = os.environ | {"LD_LIBRARY_PATH": libraries}
    last = ""
    with subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as guest:
        try:
            assert guest.stdout is not None
            for line in guest.stdout:
                sys.stdout.write(line)
                sys.stdout.flush()
                last = line.strip() or last
                if last in ("passed", "failed", "the denied part failed"):
                    break
            guest.wait(20)
        except subprocess.TimeoutExpired:
            guest.kill()
    return 0 if last == "passed" else 1


if __name__ == "__main__":
    sys.exit(main())
