"""Cards: which of them is the limit, which starves, and which does another's work."""

from __future__ import annotations

from engine.advice.diagnosis.finding import Action
from engine.advice.diagnosis.rule import Said
from engine.advice.diagnosis.window import Window, percent_text, spoken
from engine.api.values import EngineSample

LIMIT = 0.70
CPU_WAITS = 0.15
"""A node that waits less is as much of a limit as the card."""
STARVES = 0.25
GAPS = 0.30
UNEQUAL = 1.5
FREE_BYTES = 1e9
"""What a card must have free before it can take a layer from another."""
NEAR_CEILING = 0.80


def limit(window: Window) -> Said | None:
    """One card has most of the step, and the CPU waits for it."""
    for device in window.cards:
        share = window.share(device)
        if share is None or share <= LIMIT or len(window.devices) < 2:
            continue
        node = next(iter(window.nodes), "")
        waits = window.waits(node) if node else None
        if waits is None or waits < CPU_WAITS:
            continue
        room = [other for other in window.cards if other != device and _free(window, other) >= FREE_BYTES]
        if room:
            action = Action("rebalance", "Look at a faster placement", device)
            more = f" {spoken(room[0])} has room."
        else:
            action, more = Action(), " There is nothing to gain by moving layers."
        return Said(
            f"{spoken(device)} is the limit; the CPU waits {percent_text(waits)} of the time.{more}",
            f"{percent_text(share)} of a token's time is its work; pinning workers or more of them would not help",
            action,
            device,
        )
    return None


def starving(window: Window) -> Said | None:
    """A card stands still between launches, and it is not the CPU's memory that it waits for."""
    if len(window.devices) != 1 or not window.cards:
        return None  # beside others a wait is a wait for them
    device = window.cards[0]
    share = window.share(device)
    outside = window.works_mean(_outside)
    gpu = window.card(device)
    busy = None if gpu is None else gpu.busy_percent
    idle = None if share is None else 1 - share
    gaps = max((one for one in (idle, outside) if one is not None), default=None)
    if gaps is None or gaps <= GAPS or busy is None or busy >= 100 * STARVES:
        return None
    return Said(
        f"{spoken(device)} waits for the program and its driver: it is busy {busy:.0f} % of the time.",
        f"{percent_text(gaps)} of the time passes between its launches; a captured graph, or several answers at once, fill that",
        Action("doctor", "Open Doctor", device, "D-SYS-7"),
        device,
    )


def _outside(sample: EngineSample) -> float | None:
    """The share of a token's time that passes between steps."""
    step, outside = sample.step_ms, sample.outside_ms
    return None if not step or outside is None else outside / (step + outside)


def unequal(window: Window) -> Said | None:
    """One card works much longer than another that has room."""
    times: dict[str, float] = {}
    for device in window.cards:
        ms = window.token_ms(device)
        if ms:
            times[device] = ms
    if len(times) < 2:
        return None
    most, least = max(times, key=lambda one: times[one]), min(times, key=lambda one: times[one])
    if times[most] <= UNEQUAL * times[least] or _free(window, least) < FREE_BYTES:
        return None
    return Said(
        f"{spoken(most)} does {times[most] / times[least]:.1f} times the work of {spoken(least)}, which has room.",
        f"a token takes {times[most]:.1f} ms on {spoken(most)} and {times[least]:.1f} ms on {spoken(least)}",
        Action("rebalance", "Look at a faster placement", most),
        most,
    )


def _free(window: Window, device: str) -> float:
    gpu = window.card(device)
    return 0.0 if gpu is None or gpu.memory_free_bytes is None else float(gpu.memory_free_bytes)
