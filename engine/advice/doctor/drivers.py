"""Which driver of NVIDIA's is loaded, and what the installed torch was built for, from files alone. Never raises."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from engine.hardware import sysfs

LEAST_DRIVER = {11: 450, 12: 525, 13: 580}
"""By the major version of CUDA, the oldest driver that programs built for it run on (NVIDIA, CUDA Compatibility, minor version
compatibility). Newer drivers run them all."""
_VERSION = re.compile(r"\b(\d{3}\.\d{2,3}(?:\.\d{2})?)\b")
_CUDA = re.compile(r"^cuda\b[^=\n]*=\s*['\"](\d+\.\d+)['\"]", re.MULTILINE)


def driver_version(root: Path) -> str | None:
    """`580.82.07` of the driver that is loaded."""
    module = sysfs.text(root / "sys/module/nvidia/version")
    if module and _VERSION.search(module):
        return module
    found = _VERSION.search(sysfs.text(root / "proc/driver/nvidia/version") or "")
    return found[1] if found else None


def torch_cuda() -> str | None:
    """`12.8`, the version of CUDA that torch was built for; "" for a build without; None where torch is not installed."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    text = sysfs.text(Path(next(iter(spec.submodule_search_locations))) / "version.py")
    found = _CUDA.search(text or "")
    return found[1] if found else ""


def runs_on(capability: str, archs: tuple[str, ...]) -> bool:
    """Whether code for `archs` (`sm_90`, `compute_90`) runs on a card of this capability (`9.0`): machine code of the same major
    version and no later minor one, or intermediate code of no later version."""
    major, _, minor = capability.partition(".")
    mine = (_whole(major), _whole(minor))
    for arch in archs:
        kind, _, digits = arch.partition("_")
        digits = digits.rstrip("af")
        if len(digits) < 2 or not digits.isdigit():
            continue
        theirs = (int(digits[:-1]), int(digits[-1]))
        if theirs <= mine and (kind == "compute" or theirs[0] == mine[0]):
            return True
    return False


def _whole(digits: str) -> int:
    return int(digits) if digits.isdecimal() and len(digits) < 4 else 0
