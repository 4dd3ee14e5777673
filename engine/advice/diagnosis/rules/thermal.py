"""Clocks that are low: heat, the power supply, power limits, and systems that save power."""

from __future__ import annotations

from engine.advice.diagnosis.finding import Action
from engine.advice.diagnosis.rule import Said
from engine.advice.diagnosis.window import LEAST_READINGS, Window, spoken
from engine.api.values import GpuSample

HEAT = 0x20 | 0x40
"""NVML: slowed by software because of heat, and by the hardware."""
BRAKE = 0x80
POWER = 0x04
OFTEN = 0.2
"""Of the readings: a single touch of the limit costs nothing."""
MOSTLY = 0.5
MATTERS = 0.6
"""Of a step on the card: a power limit slows what is busy."""
CPU_HOT_C = 95.0
"""Where the processor does not tell its own limit: those of most are 95 to 105 degrees."""
CPU_SLOW = 0.85
"""Of the highest clock seen in the window or told by the system."""


def heat(window: Window) -> Said | None:
    """A card lowers its clock because of heat."""
    found = _slowed(window, HEAT, OFTEN)
    if found is None:
        return None
    device, gpu, share = found
    parts = [] if gpu.temperature_c is None else [f"{gpu.temperature_c:.0f} °C"]
    lost = ""
    if gpu.core_clock_mhz and gpu.core_clock_max_mhz and gpu.core_clock_mhz < gpu.core_clock_max_mhz:
        parts.append(f"clock {gpu.core_clock_mhz:,.0f} of {gpu.core_clock_max_mhz:,.0f} MHz")
        part = window.share(device)
        # What waits for memory does not feel a core's clock: so much at most.
        loss = None if part is None else 100 * part * (1 - gpu.core_clock_mhz / gpu.core_clock_max_mhz)
        lost = f": at most -{loss:.0f} %" if loss is not None and loss >= 1 else ""
    what = f" ({', '.join(parts)})" if parts else ""
    return Said(
        f"{spoken(device)} slows itself because of heat{what}{lost}.",
        f"in {100 * share:.0f} % of the last readings heat was the reason for its low clock; more air helps, and a lower power "
        "limit costs little while tokens are decoded",
        _less(device),
        device,
    )


def _less(device: str) -> Action:
    """Less work makes less heat, and draws less."""
    return Action("ease", "Give it less to do", device, otherwise=Action("doctor", "Open Doctor", device, "D-GPU-6"))


def brake(window: Window) -> Said | None:
    """The power supply asks a card for less."""
    found = _slowed(window, BRAKE, OFTEN)
    if found is None:
        return None
    device, gpu, share = found
    drawn = "" if gpu.power_w is None else f" at {gpu.power_w:.0f} W"
    return Said(
        f"{spoken(device)} is held back by its power supply connection{drawn}. Check the cable and the supply.",
        f"in {100 * share:.0f} % of the last readings the power brake signal of the connector held its clock down",
        _less(device),
        device,
    )


def power_limit(window: Window) -> Said | None:
    """Somebody has set a card's power limit below its own, and it is felt."""
    found = _slowed(window, POWER, MOSTLY)
    if found is None:
        return None
    device, gpu, share = found
    part = window.share(device)
    if gpu.power_limit_w is None or gpu.power_limit_default_w is None or part is None or part <= MATTERS:
        return None
    if gpu.power_limit_w >= gpu.power_limit_default_w:
        return None
    return Said(
        f"{spoken(device)} works at a power limit of {gpu.power_limit_w:.0f} W (default {gpu.power_limit_default_w:.0f} W).",
        f"the limit held its clock in {100 * share:.0f} % of the last readings, and {100 * part:.0f} % of a step is its work; "
        "decoding mostly waits for memory, so that a lower limit may have been a good choice",
        Action("doctor", "Open Doctor", device, "D-GPU-5"),
        device,
    )


def _slowed(window: Window, bits: int, share: float) -> tuple[str, GpuSample, float] | None:
    """The first card for whose low clock one of these reasons was given often enough; its last reading; how often."""
    for _, gpu in window.fresh_cards:
        history = [one for one in window.history(gpu.key) if one.slow_bits is not None]
        slowed = sum(bool((one.slow_bits or 0) & bits) for one in history)
        if len(history) >= LEAST_READINGS and slowed >= share * len(history) and slowed:
            return window.device_name(gpu), gpu, slowed / len(history)
    return None


def processor_heat(window: Window) -> Said | None:
    """The processor is at its limit, and its clock is low."""
    celsius = window.mean(lambda one: one.cpu.temperature_c)
    if celsius is None or celsius < CPU_HOT_C or not window.is_working:
        return None
    clocks = [core.frequency_mhz for one in window.readings for core in window.worker_cores(one.snapshot) if core.frequency_mhz]
    highest, now = (
        max(clocks, default=0.0),
        [core.frequency_mhz for core in window.worker_cores(window.readings[-1].snapshot) if core.frequency_mhz],
    )
    mean = sum(now) / len(now) if now else 0.0
    if not highest or mean >= CPU_SLOW * highest:
        return None
    return Said(
        f"CPU at {celsius:.0f} °C, {mean / 1000:.1f} of {highest / 1000:.1f} GHz.",
        "the processor lowers its clock because of heat while the model works; its cooler or the air around it is the limit",
        Action("doctor", "Open Doctor", target="D-CPU-5"),
    )


def saving(window: Window) -> Said | None:
    """The system keeps the processor's clock low on purpose."""
    topology = window.facts.topology
    if topology is None or not topology.facts.held_slow or not window.is_working or not window.nodes:
        return None
    facts = topology.facts
    what = f"energy preference {facts.energy_preference}" if facts.energy_preference == "power" else f"governor {facts.governor}"
    where = ", on battery" if facts.on_battery else ""
    return Said(
        "The system saves power on the CPU.",
        f"{what}{where}: clocks rise late or not at all while the model works",
        Action("doctor", "Open Doctor", target="D-CPU-4"),
    )
