"""How a card or processor is, from one reading: a band and a sentence; and what the power supply has left.

Bands: warm from 80 C on or while heat or the power supply lowers a clock, hot from 90 C on or where the card slows itself down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.api.values import CpuSample, GpuSample, HardwareSnapshot, why

Level = Literal["ok", "warm", "hot", "lost", "unknown"]

WARM_C = 80.0
HOT_C = 90.0
SLOWED = {
    0x20: "the driver lowers its clock because of heat",
    0x40: "its hardware lowers its clock because of heat",
    0x80: "the power supply or its cable asks for less power, so its clock is low",
}
"""Reasons for a low clock that somebody can do something about, by NVML's bit. A power limit under full load is none."""

PSU_FULL = 0.9
"""From this share of a power supply on, short peaks can be more than it gives."""


@dataclass(frozen=True, slots=True)
class Health:
    """sentence: for people, "" when all is well. unknown: it cannot be told now, and the sentence says why."""

    level: Level
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class PsuBudget:
    """What the power supply gives and what is drawn of it, in watts of the parts that tell theirs.

    limit_w: as its owner said. possible_w: what cards and processors could draw at once: cards at their limits, the processors as
    now. sentence: for people. is_tight: PSU_FULL of it is reached, or possible_w is beyond it.
    """

    limit_w: float
    drawn_w: float
    possible_w: float
    sentence: str
    is_tight: bool


def gpu_health(gpu: GpuSample) -> Health:
    """The band of one card."""
    if gpu.state == "lost":
        return Health("lost", f"{gpu.name}: {gpu.problem}")
    if gpu.state in ("asleep", "resting"):
        return Health("ok", f"{gpu.name}: {gpu.problem}")
    if gpu.state != "ok":
        return Health("unknown", f"{gpu.name}: {gpu.problem}")
    slowed = [text for bit, text in SLOWED.items() if (gpu.slow_bits or 0) & bit]
    celsius, margin = gpu.temperature_c, gpu.margin_c
    if celsius is None and not slowed:
        return Health("unknown", f"{gpu.name}: no temperature, {why(gpu.missing, 'temperature_c') or 'it has not been read yet'}")
    at_slowdown = celsius is not None and gpu.slowdown_temperature_c is not None and celsius >= gpu.slowdown_temperature_c
    if at_slowdown or (margin is not None and margin <= 0):
        return Health("hot", _says(gpu.name, celsius, "it slows itself down at this temperature"))
    if celsius is not None and celsius >= HOT_C:
        return Health("hot", _says(gpu.name, celsius, *slowed))
    if slowed or (celsius is not None and celsius >= WARM_C):
        return Health("warm", _says(gpu.name, celsius, *slowed))
    return Health("ok")


def cpu_health(cpu: CpuSample) -> Health:
    """The band of the processor by its hottest sensor."""
    celsius = cpu.temperature_c
    if celsius is None:
        return Health(
            "unknown", f"{cpu.name}: no temperature, {why(cpu.missing, 'temperature_c') or 'this system has no sensor'}"
        )
    if celsius >= HOT_C:
        return Health("hot", _says(cpu.name, celsius))
    return Health("warm", _says(cpu.name, celsius)) if celsius >= WARM_C else Health("ok")


def psu_budget(watts: int, snapshot: HardwareSnapshot) -> PsuBudget | None:
    """What is drawn of a supply of so many watts; None where it is not told (0) or no part tells its power."""
    cards = [gpu for gpu in snapshot.gpus if gpu.power_w is not None]
    cpu_w = snapshot.cpu.package_power_w
    if watts <= 0 or (not cards and cpu_w is None):
        return None
    drawn = sum(gpu.power_w or 0.0 for gpu in cards) + (cpu_w or 0.0)
    possible = sum(max(gpu.power_w or 0.0, gpu.power_limit_w or 0.0) for gpu in cards) + (cpu_w or 0.0)
    tight = drawn >= PSU_FULL * watts or possible > watts
    names = "cards and processors" if cards and cpu_w is not None else ("cards" if cards else "processors")
    sentence = f"{names} draw {drawn:,.0f} of the {watts:,} W that the power supply gives"
    if drawn >= PSU_FULL * watts:
        sentence += "; short peaks can be more than it gives: lower the cards' power limits"
    elif possible > watts:
        sentence += f"; at their limits they would draw {possible:,.0f} W: lower the cards' power limits"
    if cards and cpu_w is None:
        sentence += " (without the processors, whose power this system does not tell)"
    return PsuBudget(float(watts), drawn, possible, sentence[0].upper() + sentence[1:], tight)


def _says(name: str, celsius: float | None, *causes: str) -> str:
    parts = [*([] if celsius is None else [f"{celsius:.0f} °C"]), *causes]
    return f"{name}: {', '.join(parts)}"
