"""`python -m tests.numa_guest [faults]`: fetches, builds and boots the guest. Returns 0 where it passed, or cannot be had here.

Without a word: where pages lie, in a minute or two. `faults`: what only a machine with several nodes can suffer, in several
guests, some minutes each; `faults SHAPE...` only those of `machine.SHAPES`. `--healthy SECONDS`: answers for so long before the
first fault. A guest whose processors are taken for many seconds, as by a machine that sleeps, may name nothing in time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.helpers.models import included_model
from tests.helpers.runs import write_model
from tests.numa_guest.machine import SHAPES, booted
from tests.numa_guest.parts import Missing, cache, disk, initrd, unpacked

COLD_BYTES = 24 << 20
HEALTHY_S = 120
FAULTS_S = 1800.0
SHAPE_S = 600.0


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=("pages", "faults"), default="pages")
    parser.add_argument("shapes", nargs="*", help=f"some of {', '.join(SHAPES)}")
    parser.add_argument("--healthy", type=int, default=HEALTHY_S, metavar="SECONDS")
    parser.add_argument("--only", default="pages,worker,cores,full", metavar="FAULTS", help="of the guest with two nodes")
    wanted = parser.parse_args()
    folder = cache()
    try:
        root = unpacked(folder)
    except Missing as why:
        sys.stderr.write(f"skipped: {why}\n")
        return 0
    with tempfile.TemporaryDirectory(dir=folder) as made:
        work = Path(made)
        initrd(root, work / "initrd.gz")
        if wanted.what == "faults":
            return _faults(root, work, wanted.shapes or list(SHAPES), wanted.healthy, wanted.only)
        disk(work / "disk.img", work / "stage", _models(work), root / "bin/busybox")
        return 0 if booted(root, work) else 1


def _models(work: Path) -> list[Path]:
    """A mixture of experts of some megabytes, and files that nobody has read when the guest starts."""
    model = write_model(work / "moe.gguf", quant="F16", n_embd=128, n_ff=768, n_experts=8, n_ctx=512, n_layers=6)
    rng, cold = np.random.default_rng(1), []
    for i in range(3):
        cold.append(work / f"cold{i}.bin")
        cold[-1].write_bytes(rng.bytes(COLD_BYTES))
    return [model, *cold]


def _faults(root: Path, work: Path, shapes: list[str], healthy_s: int, only: str) -> int:
    model = included_model()
    if model is None:
        sys.stderr.write("skipped: the included model is not installed\n")
        return 0
    disk(work / "disk.img", work / "stage", [model], root / "bin/busybox")
    failed = []
    for shape in shapes:
        if shape == "two":
            good = booted(root, work, shape, "faults", FAULTS_S, GUEST_HEALTHY=str(healthy_s), GUEST_FAULTS=only)
        else:
            good = booted(root, work, shape, "shapes", SHAPE_S)
        failed += [] if good else [shape]
    sys.stdout.write(f"guests that failed: {', '.join(failed)}\n" if failed else "all guests passed\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
