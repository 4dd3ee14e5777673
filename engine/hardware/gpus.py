"""Which GPUs there are and what memory they have, found without torch; and why there is none to compute on, in a sentence.

The runtime opens them; whoever plans, estimates or lists devices asks here. `LAYERDECK_GPU` says which are looked for: `auto`
(default), `none`, or `emulate[:n]`: n devices of 24 GiB that are computed by torch on the CPU, `emulate:2x8` two of 8 GiB.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.errors import InvalidRequest
from engine.hardware.gpu_listing import SILENT, Listed, listed_by_driver

SETTING = "LAYERDECK_GPU"
EMULATED_BYTES = 24 << 30
MAX_EMULATED = 64
_EMULATE = re.compile(r"emulate(?::(\d+)(?:x(\d+(?:\.\d+)?))?)?")


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """One GPU by its number among those that CUDA shows us. Bytes are None where nothing tells them.

    uuid: as its driver knows it, "" for emulated ones. read_gbps: of its memory; link_gbps: between it and the memory of `node`;
    both None where nothing tells them.
    """

    index: int
    name: str
    total_bytes: int | None
    free_bytes: int | None
    emulated: bool = False
    read_gbps: float | None = None
    link_gbps: float | None = None
    node: int = 0
    uuid: str = ""

    @property
    def capacity(self) -> int:
        """Bytes that can be taken: what is free, else what there is, else 0."""
        return self.free_bytes or self.total_bytes or 0


@dataclass(frozen=True, slots=True)
class Gpus:
    """found: all that are asked for and there. problem: why they cannot be computed on, or why there is none, or ""."""

    found: tuple[GpuInfo, ...]
    problem: str = ""

    @property
    def usable(self) -> tuple[GpuInfo, ...]:
        """Those that can be computed on."""
        return () if self.problem else self.found


def find_gpus(env: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Gpus:
    """The GPUs of this machine as `LAYERDECK_GPU` asks for them. Takes milliseconds; imports no torch.

    Raises:
        InvalidRequest: a setting that means nothing.
    """
    setting = env.get(SETTING, "").strip() or "auto"
    if setting == "none":
        return Gpus((), f"GPUs are switched off by {SETTING}=none")
    emulated = _EMULATE.fullmatch(setting)
    if emulated is not None:
        return Gpus(_emulated(setting, *emulated.groups()), _missing_package("torch"))
    if setting != "auto":
        raise InvalidRequest(f"{SETTING} is {setting[:40]!r}; use auto, none, emulate or emulate:2 (two emulated GPUs)")
    listed, problem = listed_by_driver(root)
    if not listed:
        listed = _driver_files(root)
    found = _visible(listed, env.get("CUDA_VISIBLE_DEVICES"))
    if not found:
        hidden = "CUDA_VISIBLE_DEVICES hides all GPUs" if listed else ""
        return Gpus((), hidden or problem or "this machine has no NVIDIA GPU with a driver")
    # A driver that hangs on questions would hang on work.
    silent = problem if problem.startswith(SILENT) else ""
    return Gpus(found, silent or _missing_package("torch", "triton") or _missing_compiler(env))


def _emulated(setting: str, count: str | None, gib: str | None) -> tuple[GpuInfo, ...]:
    n = int(count or 1)
    if not 1 <= n <= MAX_EMULATED:
        raise InvalidRequest(f"{SETTING} is {setting[:40]!r}; 1 to {MAX_EMULATED} GPUs can be emulated")
    nbytes = EMULATED_BYTES if gib is None else int(float(gib) * (1 << 30))
    return tuple(GpuInfo(i, "emulated GPU", nbytes, nbytes, emulated=True) for i in range(n))


def _missing_package(*names: str) -> str:
    """Which of the packages that the GPU path needs is not installed, or ""."""
    missing = next((name for name in names if importlib.util.find_spec(name) is None), None)
    return "" if missing is None else f"{missing} is not installed, which GPUs need; install it: pip install 'layerdeck[gpu]'"


def _missing_compiler(env: Mapping[str, str]) -> str:
    """Triton builds a small launcher with a C compiler when it starts."""
    names = (env["CC"],) if env.get("CC") else ("gcc", "clang", "cc")
    if any(shutil.which(name, path=env.get("PATH")) for name in names):
        return ""
    return "there is no C compiler, which Triton needs to build its launcher; install gcc (apt-get install gcc libc6-dev)"


def _driver_files(root: Path) -> list[Listed]:
    """What the driver's files say: names, no memory."""
    found = []
    for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        found.append(Listed(values.get("GPU UUID", ""), values.get("Model", "NVIDIA GPU")))
    return found


def _visible(listed: list[Listed], visible: str | None) -> tuple[GpuInfo, ...]:
    """Those that `CUDA_VISIBLE_DEVICES` shows, in its order: numbers, or beginnings of UUIDs, up to the first that is neither."""
    shown = list(listed)
    if visible is not None:
        shown = []
        for word in (one.strip() for one in visible.split(",")):
            match = [
                one for i, one in enumerate(listed) if word == str(i) or (word.startswith("GPU-") and one.uuid.startswith(word))
            ]
            if not match or match[0] in shown:
                break
            shown.append(match[0])
    return tuple(GpuInfo(i, one.name, one.total_bytes, one.free_bytes, uuid=one.uuid) for i, one in enumerate(shown))
