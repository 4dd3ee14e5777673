"""The Timeline and the names of its gauges, as painters know them. The floor below keeps them, since operations fill them."""

from __future__ import annotations

from app.telemetry.keys import (
    cpu,
    decode,
    device,
    disk,
    engine,
    first_token,
    gpu,
    memory,
    node,
    power,
    prefill,
    pressure,
    ram_used,
    split,
    unit,
    vram_used,
)
from app.telemetry.timeline import Timeline

__all__ = [
    "Timeline",
    "cpu",
    "decode",
    "device",
    "disk",
    "engine",
    "first_token",
    "gpu",
    "memory",
    "node",
    "power",
    "prefill",
    "pressure",
    "ram_used",
    "split",
    "unit",
    "vram_used",
]
