"""Exits 0 where tests of the GPU path should install PyTorch: a GPU is there, or pip would take a build for the CPU alone.

From PyPI, PyTorch is the build for CUDA with gigabytes of libraries, of no use to a developer without a GPU; a dry run tells
which build it would be before anything is fetched. Where it exits 1, those tests are skipped and say so.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path


def pinned() -> str:
    """The requirement that constraints.txt makes of `torch`."""
    found = re.search(r"^torch==\S+$", Path("constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    return found[0] if found else "torch"


def has_gpu() -> bool:
    """Whether a driver for graphics cards is installed."""
    return shutil.which("nvidia-smi") is not None or Path("/dev/kfd").exists()


def is_for_cpu_alone(requirement: str) -> bool:
    """Whether pip would take a build that names the CPU in its version."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--dry-run", "--no-deps"]
    done = subprocess.run([*command, "-q", "--report", "-", requirement], capture_output=True, text=True, check=False)
    try:
        installs = json.loads(done.stdout)["install"]
    except (ValueError, KeyError):
        return False
    return not installs or str(installs[0]["metadata"]["version"]).endswith("+cpu")  # none: it is installed


def main() -> int:
    """The exit code."""
    if has_gpu() or is_for_cpu_alone(pinned()):
        return 0
    print("tests of the GPU path are skipped: PyTorch would be the build for CUDA, and there is no GPU here", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
