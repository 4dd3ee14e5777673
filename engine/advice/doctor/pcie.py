"""Rows about the links between cards and the machine. Their width is wiring and contact; their generation falls while idle."""

from __future__ import annotations

from engine.advice.doctor.check import Fix, Outcome, count, failed, gb, listed, passed, row, unknown, warned, without_object
from engine.advice.doctor.context import Context
from engine.advice.doctor.links import LANE_GBPS, bridge_of, has_iommu, iommu_words, largest_window, slot_width, translates
from engine.hardware.snapshot import GpuSample
from engine.hardware.topology import PciGpu

GROUP = "Links of cards"
NO_CARD = "This machine has no graphics card."
SEAT = Fix("", "switch the computer off, seat the card again, and try it without a riser or with a better one", "")
SLOTS = Fix(
    "", "look in the board's manual how slots share lanes, and set the slot's bifurcation in the firmware", "set it back there"
)
LOW_SHARE = 0.6
"""Of what a link gives in theory. Copies from pinned memory reach about 80 to 90 %."""
ERRORS_PER_MIN = 1.0
LARGE_WINDOW = 0.9


def _samples(context: Context) -> dict[str, GpuSample]:
    return {} if context.snapshot is None else {gpu.pci: gpu for gpu in context.snapshot.gpus}


def _name(context: Context, card: PciGpu) -> str:
    sample = _samples(context).get(card.pci)
    return f"{sample.name} ({card.pci})" if sample else card.pci


@row("D-PCI-1", GROUP, "Lanes")
def width(context: Context) -> Outcome:
    """Lanes now against those that card and slot both have."""
    cards = context.topology.gpus
    if not cards:
        return without_object(NO_CARD)
    narrow, small, parts = [], [], []
    for card in cards:
        sample, slot = _samples(context).get(card.pci), slot_width(context.root, card.pci)
        now = card.link_width or (sample.link_width if sample else None)
        of_card = card.link_width_max or (sample.link_width_max if sample else None)
        if now is None or of_card is None:
            continue
        name, possible = _name(context, card), min(of_card, slot or of_card)
        parts.append(f"{name}: {now} of {count(of_card, 'lane')}")
        if now < possible:
            narrow.append(f"{name} runs on {now} of {count(possible, 'lane')}")
        elif possible < of_card:
            small.append(f"{name} sits in a slot of {count(possible, 'lane')}")
    if not parts:
        why = (
            "Cards that sleep do not tell."
            if any(card.asleep for card in cards)
            else "The system does not tell, as in most guests."
        )
        return unknown(why, "current_link_width of the PCI device")
    found, evidence = listed(parts), "current_link_width, max_link_width of card and slot"
    if narrow:
        why = f"Fewer lanes than possible: {listed(narrow)}. Copies take longer by as much."
        return warned(found, why, SEAT, SLOTS, evidence=evidence)
    return passed(found, f"That is how the board is made: {listed(small)}." if small else "", evidence=evidence)


@row("D-PCI-2", GROUP, "Link under load", quick=False)
def under_load(context: Context) -> Outcome:
    """Generation and speed in the midst of a copy of some seconds; what is seen while idle means nothing."""
    if not context.topology.gpus:
        return without_object(NO_CARD)
    rates = context.links() if context.links is not None else ()
    if not rates:
        return unknown("A link is judged while it copies for some seconds, which was not tried: at rest its generation falls.")
    slow, parts = [], []
    samples = {gpu.key: gpu for gpu in context.snapshot.gpus} if context.snapshot else {}
    for rate in rates:
        sample = samples.get(rate.key)
        name = sample.name if sample else rate.key
        words = f"{name}: {rate.gbps:.1f} GB/s to the card"
        if rate.generation and rate.width:
            words += f", generation {rate.generation} with {count(rate.width, 'lane')}"
            theory = LANE_GBPS.get(rate.generation, 0.0) * rate.width
            if rate.gbps < LOW_SHARE * theory:
                slow.append(f"{name} reaches {rate.gbps:.1f} of {theory:.1f} GB/s")
        most = sample.link_generation_max if sample else None
        if rate.generation and most and rate.generation < most:
            slow.append(f"the link of {name} runs at generation {rate.generation} under load and could do {most}")
        parts.append(words)
    found = listed(parts)
    if not slow:
        return passed(found, evidence="copies from pinned memory")
    speed = Fix("", "set the slot to that generation in the firmware, or use a better riser", "set it back there")
    text = listed(slow)
    return warned(found, f"{text[0].upper()}{text[1:]}.", speed, SEAT, evidence="copies from pinned memory")


@row("D-PCI-3", GROUP, "Link errors")
def errors(context: Context) -> Outcome:
    """Corrected errors that devices report (AER), and packets that cards had to send again."""
    cards = context.topology.gpus
    if not cards:
        return without_object(NO_CARD)
    watched = {}
    for card in cards:
        watched[card.pci] = card.pci
        bridge = bridge_of(context.root, card.pci)
        if bridge is not None:
            watched[bridge.name] = f"the slot of {card.pci}"
    totals = {address: n for address, n in context.now.link_errors if address in watched}
    replays = {gpu.pci: gpu.link_replays for gpu in _samples(context).values() if gpu.link_replays is not None}
    if not totals and not replays:
        return unknown("Neither the system nor the driver counts errors of these links.", "aer_dev_correctable")
    before = dict(context.before.link_errors) if context.before else {}
    rising = [watched[address] for address, n in totals.items() if n > before.get(address, n)]
    minutes = _uptime_min(context)
    often = [watched[address] for address, n in totals.items() if minutes and n / minutes > ERRORS_PER_MIN]
    parts = [f"{count(sum(totals.values()), 'corrected error')} since the start"] if totals else []
    parts += [f"{count(sum(replays.values()), 'packet')} sent again"] if replays else []
    found, evidence = ", ".join(parts), "aer_dev_correctable, replay counter of the driver"
    if not rising and not often:
        return passed(found, "A few are normal; a number that rises means a bad riser, slot or cable.", evidence=evidence)
    slower = Fix("", "if that does not help, set the slot one generation lower in the firmware", "set it back there")
    where = ", ".join(dict.fromkeys((*rising, *often)))
    return warned(
        found, f"The link has errors: {where}. Riser, slot or contact is the usual cause.", SEAT, slower, evidence=evidence
    )


def _uptime_min(context: Context) -> float:
    words = (context.text("proc/uptime") or "").split()
    try:
        return float(words[0]) / 60
    except (IndexError, ValueError):
        return 0.0


@row("D-PCI-4", GROUP, "Power saving of links")
def saving(context: Context) -> Outcome:
    """The kernel's policy for links that rest (ASPM)."""
    path = "sys/module/pcie_aspm/parameters/policy"
    text = context.text(path)
    if text is None:
        return unknown("The kernel does not tell; the firmware may decide it alone.", f"/{path}")
    chosen = next((word.strip("[]") for word in text.split() if word.startswith("[")), text)
    if not context.topology.gpus:
        return without_object(NO_CARD)
    fix = Fix(
        f"sudo sh -c 'echo performance > /{path}'",
        "keeps links awake, until the next restart (pcie_aspm.policy=performance on the kernel's command line keeps it so); "
        "refused where the firmware decides. Measure with `layerdeck bench` before and after: it often changes nothing",
        f"sudo sh -c 'echo {chosen} > /{path}'",
    )
    if "powersave" in chosen or "powersupersave" in chosen:
        why = "Links sleep between copies and take time to wake, and some boards report errors with it."
        return warned(chosen, why, fix, evidence=f"/{path}")
    return passed(chosen, evidence=f"/{path}")


@row("D-PCI-5", GROUP, "Window into the card's memory")
def window(context: Context) -> Outcome:
    """Resizable BAR: whether all of a card's memory can be addressed at once; matters for loading alone."""
    cards = context.topology.gpus
    if not cards:
        return without_object(NO_CARD)
    small, parts = [], []
    for card in cards:
        sample = _samples(context).get(card.pci)
        size = (sample.bar1_total_bytes if sample else None) or largest_window(context.root, card.pci)
        if size is None:
            continue
        parts.append(f"{_name(context, card)}: {gb(size)}")
        total = sample.memory_total_bytes if sample else None
        if total and size < LARGE_WINDOW * total:
            small.append(card.pci)
    if not parts:
        return unknown("Neither the system nor the driver tells.", "resource of the PCI device, BAR1")
    fix = Fix(
        "", "switch on Above 4G Decoding and Resizable BAR in the firmware, where the board has them", "switch them off there"
    )
    why = "The window is smaller than the card's memory. Loading may be a little slower; answers are not."
    return passed(listed(parts), why if small else "", *((fix,) if small else ()), evidence="BAR1")


@row("D-PCI-6", GROUP, "Copies between cards")
def between(context: Context) -> Outcome:
    """Whether what one card writes into another arrives: an IOMMU that translates addresses can drop it without any error."""
    cards = tuple(card for card in context.topology.gpus if card.maker == "nvidia")
    state = {card.pci: translates(context.root, card.pci) for card in cards}
    found, evidence = _iommu_words(context, state), "/sys/class/iommu, iommu_group/type, /proc/cmdline"
    if len(cards) < 2:
        return passed(found, "With fewer than two cards nothing is copied between them.", evidence=evidence)
    asked = context.peers() if context.peers is not None else None
    pt = Fix(
        "iommu=pt",
        "a word for the kernel's command line (GRUB_CMDLINE_LINUX in /etc/default/grub, then sudo update-grub): devices of the "
        "host are no longer translated, from the next restart on; virtual machines can still be given devices",
        "take the word out again",
    )
    if asked is not None and asked.lost:
        why = f"Copies from card to card are silently lost; they go through the machine's memory instead. {asked.lost[0]}"
        return failed(f"{found}; {count(len(asked.lost), 'pair')} lose data", why, pt, evidence="copies that were compared")
    if asked is not None:
        why = asked.apart[0] if asked.apart else "What was copied between cards arrived."
        return passed(f"{found}; {count(asked.n_pairs, 'pair')} tried", why, evidence="copies that were compared")
    if any(state.values()):
        why = "Copies between cards may be lost behind it; they are tried and compared before a model uses them."
        return warned(found, why, pt, evidence=evidence)
    return passed(found, "Copies between cards are tried and compared before a model uses them.", evidence=evidence)


def _iommu_words(context: Context, state: dict[str, bool | None]) -> str:
    if has_iommu(context.root) is None:
        return "IOMMU not known"
    if not has_iommu(context.root):
        return "no IOMMU is in use"
    words = " ".join(iommu_words(context.root))
    how = "translates the cards' addresses" if any(state.values()) else "passes the cards' addresses through"
    if not state or any(value is None for value in state.values()):
        how = "is in use"
    return f"the IOMMU {how}" + (f" ({words})" if words else "")


@row("D-PCI-7", GROUP, "NVLink")
def nvlink(context: Context) -> Outcome:
    """Direct links between cards, where cards have them."""
    samples = [gpu for gpu in _samples(context).values() if gpu.nvlinks is not None]
    if not samples:
        if context.snapshot is None and any(card.maker == "nvidia" for card in context.topology.gpus):
            return unknown("The cards were not asked.")
        return without_object("No card here has links of its own to others; most desktop cards have none.")
    parts = [f"{gpu.name} ({gpu.pci}): {gpu.nvlinks} of {(gpu.nvlinks or 0) + (gpu.nvlinks_down or 0)} up" for gpu in samples]
    used = any(gpu.nvlinks for gpu in samples)
    if used and any(gpu.nvlinks_down for gpu in samples):
        fix = Fix("", "switch the computer off and seat the bridge between the cards again", "")
        return warned(listed(parts), "Some links are down: copies between these cards are slower.", fix, evidence="NVML")
    return passed(listed(parts), "" if used else "They are not connected to each other.", evidence="NVML")
