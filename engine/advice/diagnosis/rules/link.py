"""Links of cards: fewer lanes or slower than they could be, and too much that crosses them."""

from __future__ import annotations

from engine.advice.diagnosis.finding import Action
from engine.advice.diagnosis.rule import Said
from engine.advice.diagnosis.window import LEAST_READINGS, Window, device_of, percent_text, rate_text, spoken

COPIES_FELT = 0.10
"""Of a step: below that a narrow link costs less than it would to move anything."""
COPIES_MUCH = 0.25
LOADED_READINGS = 5
"""A link rests at a low generation while idle and takes a moment to wake."""
WORKING_PERCENT = 30.0
WEIGHTS_BYTES_PER_S = 1e9
"""Prompts that bring weights along cross a link at gigabytes a second: then it is the link that is waited for."""


def narrow(window: Window) -> Said | None:
    """A card has fewer lanes than it and its slot could use, and copies are felt."""
    for device in window.cards:
        gpu, copies = window.card(device), window.copy_share
        if gpu is None or gpu.link_width is None or gpu.link_width_max is None or gpu.link_width >= gpu.link_width_max:
            continue
        brought = _brought(window, device)
        if (copies is None or copies <= COPIES_FELT) and (brought is None or brought < WEIGHTS_BYTES_PER_S):
            continue
        felt = f"copies take {percent_text(copies)} of each step" if copies and copies > COPIES_FELT else ""
        felt = felt or f"{rate_text(brought or 0.0)} cross it"
        return Said(
            f"{spoken(device)} is connected by {gpu.link_width} of {gpu.link_width_max} lanes: {felt}.",
            "lanes do not rest while idle: the card sits in a narrower slot, badly in it, or shares its lanes",
            Action(
                "rebalance",
                "Look at a faster placement",
                device,
                otherwise=Action("doctor", "Open Doctor", device, "D-PCI-1"),
            ),
            device,
        )
    return None


def _brought(window: Window, device: str) -> float | None:
    """Bytes a second that came over a card's link, the mean of all periods."""
    return window.works_mean(lambda one: None if (work := device_of(one, device)) is None else work.in_bytes_per_s, window.works)


def slow(window: Window) -> Said | None:
    """A link stays slower than card and slot can, under load."""
    for device in window.cards:
        gpu = window.card(device)
        if gpu is None:
            continue
        history = window.history(gpu.key)[-LOADED_READINGS:]
        loaded = window.works[-LOADED_READINGS:]
        busy = [work.working_percent for one in loaded for work in one.devices if work.device == device]
        if len(history) < LOADED_READINGS or len(busy) < LOADED_READINGS or min(busy) < WORKING_PERCENT:
            continue
        if any(
            one.link_generation is None or one.link_generation_max is None or one.link_generation >= one.link_generation_max
            for one in history
        ):
            continue
        return Said(
            f"The link of {spoken(device)} runs at PCIe {gpu.link_generation} of {gpu.link_generation_max} under load.",
            f"for {LOADED_READINGS} readings with the card at work; while idle that would be normal",
            Action("doctor", "Open Doctor", device, "D-PCI-2"),
            device,
        )
    return None


def crossing(window: Window) -> Said | None:
    """Much of a step is spent on copies, though the link is what it should be."""
    copies = window.copy_share
    if copies is None or copies <= COPIES_MUCH or not window.cards or len(window.decoding) < LEAST_READINGS:
        return None
    return Said(
        f"Moving data between CPU and GPU takes {percent_text(copies)} of the time.",
        "of the last measured step; each change of device within a layer costs two copies and a wait",
        Action("rebalance", "Look at a faster placement"),
    )
