"""NVIDIA's library played by `fake_nvml.c`, built once a run, for the sensor process of one test."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.hardware.gpu_watch import GpuWatch
from engine.hardware.snapshot import GpuSample

LOOK_S = 0.02
SOURCE = Path(__file__).with_name("fake_nvml.c")


def build(folder: Path) -> Path:
    """The folder that holds the library."""
    library = folder / "libnvidia-ml.so.1"
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-parameter",
        "-Wl,-soname,libnvidia-ml.so.1",
    ]
    subprocess.run([*command, "-o", str(library), str(SOURCE)], check=True, capture_output=True)
    return folder


class Cards:
    """A machine with a driver and, at first, four healthy cards. It lives in `root`."""

    def __init__(self, root: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._state = root / "state"
        (root / "proc/driver/nvidia").mkdir(parents=True)
        (root / "proc/driver/nvidia/version").write_text("NVRM version: 580.00\n")
        monkeypatch.setenv("FAKE_NVML", str(self._state))
        inherited = os.environ.get("LD_LIBRARY_PATH")
        monkeypatch.setenv("LD_LIBRARY_PATH", f"{library}:{inherited}" if inherited else str(library))
        self.become("gpus 4")

    def become(self, *lines: str) -> None:
        """The state of the library from now on. A file is replaced, never half written."""
        fresh = self._state.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.replace(self._state)


def wait_for(watch: GpuWatch, met: Callable[[tuple[GpuSample, ...]], bool], within_s: float) -> tuple[GpuSample, ...]:
    """The cards as soon as they meet a condition. Looks are counted, not time: a machine that stands still has no deadline."""
    for _ in range(int(within_s / LOOK_S)):
        samples = watch.samples()
        if met(samples):
            return samples
        time.sleep(LOOK_S)
    raise AssertionError([(one.key, one.state, one.problem, one.age_s) for one in watch.samples()])
