"""What LAYERDECK_GPU asks for: the machine's GPUs, none, or emulated ones. Imports no torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from engine.errors import InvalidRequest

VARIABLE = "LAYERDECK_GPU"
MAX_EMULATED = 8


@dataclass(frozen=True, slots=True)
class GpuSetting:
    """kind `auto`: the GPUs that are there; `emulate`: n of them, which the CPU plays."""

    kind: Literal["none", "auto", "emulate"]
    n: int = 0


def gpu_setting() -> GpuSetting:
    """The setting of this process.

    Raises:
        InvalidRequest: a value that says nothing.
    """
    text = os.environ.get(VARIABLE, "auto") or "auto"
    kind, _, number = text.partition(":")
    if kind == "emulate" and (number.isdigit() or not number) and 1 <= int(number or 1) <= MAX_EMULATED:
        return GpuSetting("emulate", int(number or 1))
    if text == "none":
        return GpuSetting("none")
    if text == "auto":
        return GpuSetting("auto")
    raise InvalidRequest(f"{VARIABLE} is {text!r}; use none, auto, or emulate:N with N from 1 to {MAX_EMULATED}")
