"""Rows about graphics cards themselves: driver, memory, power, heat. What cards say comes from one reading of the sensors."""

from __future__ import annotations

from engine.advice.doctor.check import Fix, Outcome, count, failed, gb, listed, passed, row, unknown, warned, without_object
from engine.advice.doctor.context import Context
from engine.advice.doctor.kernel_log import FELL_OFF, read_kernel_log
from engine.hardware.snapshot import GpuSample
from engine.hardware.topology import PciGpu

GROUP = "Graphics cards"
NO_CARD = "This machine has no graphics card."
NOT_ASKED = "The cards were not asked, or have not answered yet."
OTHERS_SHARE = 0.1
"""Of a card's memory, what others may hold before it is worth a word."""
RESERVE_BYTES = 700_000_000
"""Of a card that runs a model, for the driver and what cannot be planned."""
LOW_POWER = 0.7
HOT_BITS = {
    0x20: "the driver lowers its clock because of heat",
    0x40: "its hardware lowers its clock because of heat",
    0x80: "the power supply or its cable asks for less power",
}
XID_WORDS = "https://docs.nvidia.com/deploy/xid-errors/"


def _cards(context: Context) -> tuple[PciGpu, ...]:
    return context.topology.gpus


def _answering(context: Context) -> tuple[GpuSample, ...]:
    return () if context.snapshot is None else tuple(gpu for gpu in context.snapshot.gpus if gpu.state == "ok")


def _no_card(context: Context) -> bool:
    return not _cards(context) and not (context.snapshot and context.snapshot.gpus)


def _name(gpu: GpuSample) -> str:
    return f"{gpu.name} ({gpu.pci})" if gpu.pci else gpu.name


@row("D-GPU-4", GROUP, "Free memory of cards")
def free_memory(context: Context) -> Outcome:
    """What programs hold of each card, and whether what is planned fits into the rest."""
    if _no_card(context):
        return without_object(NO_CARD)
    cards = [gpu for gpu in _answering(context) if gpu.memory_total_bytes]
    if not cards:
        return unknown(NOT_ASKED)
    model, planned = context.model, dict(context.model.gpu_bytes) if context.model else {}
    parts, short, held = [], [], []
    for gpu in cards:
        total, free = gpu.memory_total_bytes or 0, gpu.memory_free_bytes or 0
        parts.append(f"{_name(gpu)}: {gb(free)} of {gb(total)} free")
        wanted = planned.get(gpu.key, 0)
        if wanted and model and not model.is_loaded and wanted + RESERVE_BYTES > free:
            short.append(
                f"{_name(gpu)} has {gb(wanted + RESERVE_BYTES - free)} too little for the {gb(wanted)} that are planned there"
            )
        own = wanted if model and model.is_loaded else 0
        others = (gpu.memory_used_bytes or 0) - own
        if others > OTHERS_SHARE * total:
            held.append(f"{_holders(gpu)} {gb(others)} of {_name(gpu)}")
    close = Fix("", "close those programs, or keep the card that drives the screen out of the placement", "")
    if short:
        return failed(listed(parts), f"{listed(short)}.", Fix("", "move layers off that card in the placement editor", ""), close)
    if held:
        return warned(listed(parts), f"{listed(held)}: fewer layers fit there.", close, evidence="NVML")
    return passed(listed(parts), evidence="NVML")


def _holders(gpu: GpuSample) -> str:
    """`python3 and Xorg hold`, or that it is not told."""
    known = sorted((one for one in gpu.processes or () if one.memory_bytes), key=lambda one: -(one.memory_bytes or 0))
    names = list(dict.fromkeys(one.name for one in known))[:3]
    if not names:
        return "Other programs hold"
    return f"{' and '.join(names)} {'holds' if len(names) == 1 else 'hold'}"


@row("D-GPU-5", GROUP, "Power limit")
def power_limit(context: Context) -> Outcome:
    """The limit that is set against the one that the card came with."""
    if _no_card(context):
        return without_object(NO_CARD)
    cards = [gpu for gpu in _answering(context) if gpu.power_limit_w and gpu.power_limit_default_w]
    if not cards:
        return unknown(NOT_ASKED if not _answering(context) else "These cards do not tell their power limit.")
    parts, low, fixes = [], [], []
    for gpu in cards:
        limit, default = gpu.power_limit_w or 0.0, gpu.power_limit_default_w or 0.0
        parts.append(f"{_name(gpu)}: {limit:.0f} of {default:.0f} W")
        if limit < LOW_POWER * default:
            low.append(_name(gpu))
            fixes.append(
                Fix(
                    f"sudo nvidia-smi -i {gpu.pci} -pl {default:.0f}",
                    "sets the limit that the card came with, until the next restart; mind power supply and cooling",
                    f"sudo nvidia-smi -i {gpu.pci} -pl {limit:.0f}",
                )
            )
    if not low:
        return passed(listed(parts), evidence="NVML")
    why = "Somebody has set a lower limit. Answers lose little by it, prompts more."
    return warned(listed(parts), why, *fixes, evidence="NVML")


@row("D-GPU-6", GROUP, "Heat and power of cards")
def slowed(context: Context) -> Outcome:
    """Whether a card lowers its clock now because of heat or of its power supply."""
    if _no_card(context):
        return without_object(NO_CARD)
    cards = [gpu for gpu in _answering(context) if gpu.temperature_c is not None or gpu.slow_bits is not None]
    if not cards:
        return unknown(NOT_ASKED if not _answering(context) else "These cards do not tell.")
    parts, slow = [], []
    for gpu in cards:
        words = [] if gpu.temperature_c is None else [f"{gpu.temperature_c:.0f} °C"]
        words += [] if gpu.margin_c is None else [f"{gpu.margin_c:.0f} °C before it slows down"]
        words += [] if gpu.fan_percent is None else [f"fan {gpu.fan_percent:.0f} %"]
        parts.append(f"{_name(gpu)}: {', '.join(words) or 'no temperature'}")
        slow += [f"{_name(gpu)}: {text}" for bit, text in HOT_BITS.items() if (gpu.slow_bits or 0) & bit]
    if not slow:
        return passed(listed(parts), "Judged now; the monitors watch it under load.", evidence="NVML")
    air = Fix("", "let air reach the card, raise its fans, and check its power cables; a lower power limit keeps it cooler", "")
    return warned(listed(parts), f"{listed(slow)}.", air, evidence="NVML, clock event reasons")


@row("D-GPU-7", GROUP, "Driver kept awake")
def persistence(context: Context) -> Outcome:
    """Persistence mode: the driver keeps a card's state while nobody uses it; it costs neither memory nor bandwidth."""
    cards = [gpu for gpu in _answering(context) if gpu.maker == "nvidia"]
    if not any(card.maker == "nvidia" for card in _cards(context)) and not cards:
        return without_object("This machine has no card of NVIDIA's.")
    known = [gpu for gpu in cards if gpu.persistence is not None]
    if not known:
        return unknown(NOT_ASKED if not cards else "The driver does not tell.")
    off = [_name(gpu) for gpu in known if not gpu.persistence]
    if not off:
        return passed("on", evidence="NVML")
    fix = Fix(
        "sudo systemctl enable --now nvidia-persistenced",
        "keeps the driver ready while no program uses the card, also after restarts; a laptop's card would not sleep any more",
        "sudo systemctl disable --now nvidia-persistenced",
    )
    return passed(f"off: {listed(off)}", "The first use after a rest takes a second or more longer.", fix, evidence="NVML")


@row("D-GPU-8", GROUP, "Errors of cards")
def xids(context: Context) -> Outcome:
    """What the driver wrote into the kernel's log since the start (Xid), and errors that a card's memory could not correct."""
    nvidia = any(card.maker == "nvidia" for card in _cards(context)) or any(gpu.maker == "nvidia" for gpu in _answering(context))
    if not nvidia:
        return without_object("This machine has no card of NVIDIA's.")
    lost = () if context.snapshot is None else tuple(_name(gpu) for gpu in context.snapshot.gpus if gpu.state == "lost")
    power = Fix(
        "", "check the card's power cables and its seat, then restart the computer; look for an update of the firmware", ""
    )
    if lost:
        return failed(f"lost: {listed(lost)}", "The card fell off the bus; what it computed is void.", power, evidence="NVML")
    broken = [f"{_name(gpu)}: {gpu.ecc_errors:,}" for gpu in _answering(context) if gpu.ecc_errors]
    if broken:
        why = "The card's memory lost data since its driver started; answers may be wrong."
        return failed(
            f"errors of memory: {listed(broken)}", why, Fix("", "restart the computer; replace the card if it comes back", "")
        )
    log = read_kernel_log(context.root)
    if log is None:
        look = Fix(
            "journalctl -k -g 'NVRM: Xid|fallen off the bus'", "shows the driver's errors; may need the group adm or root", ""
        )
        why = "This program may not read the kernel's log."
        return Outcome("unknown", "not known", why, (look,), "/dev/kmsg")
    if not log.xids:
        return passed("none since the start", evidence="/dev/kmsg")
    kinds = sorted({number for _, number in log.xids})
    found = f"{count(len(log.xids), 'error')} since the start (Xid {', '.join(map(str, kinds))})"
    means = f"What the numbers mean: {XID_WORDS}"
    if FELL_OFF in kinds:
        where = ", ".join(sorted({pci for pci, number in log.xids if number == FELL_OFF}))
        return failed(found, f"A card fell off the bus ({where}). {means}", power, evidence="/dev/kmsg")
    return warned(
        found, f"The driver had trouble with a card; a faulty program can be the cause too. {means}", evidence="/dev/kmsg"
    )


@row("D-GPU-9", GROUP, "Cards that sleep")
def asleep(context: Context) -> Outcome:
    """A card that the system has switched off to save power is not woken by looking."""
    if not _cards(context):
        return without_object(NO_CARD)
    sleeping = [card.pci for card in _cards(context) if card.asleep]
    if not sleeping:
        return passed("none sleeps", evidence="power/runtime_status of the PCI device")
    why = (
        "The system has switched it off to save power; it wakes when a model is placed there. Its values are not read until then."
    )
    return passed(f"asleep: {', '.join(sleeping)}", why, evidence="power/runtime_status of the PCI device")


@row("D-GPU-10", GROUP, "Shared or virtual cards")
def shared(context: Context) -> Outcome:
    """Windows below, cards split into instances, virtual cards: which gauges are missing there."""
    windows = "microsoft" in (context.text("proc/version") or "").lower()
    split = [_name(gpu) for gpu in _answering(context) if gpu.mig]
    if _no_card(context) and not windows:
        return without_object(NO_CARD)
    kept = [f"{name}: {len(gpu.missing)} gauges missing" for gpu in _answering(context) if (name := _name(gpu)) in split]
    if windows:
        why = "Windows runs below: use by program, links and some clocks are not told, and little memory can be pinned."
        return passed("WSL 2", why, evidence="/proc/version")
    if split:
        why = "The card is split into instances (MIG): its use as a whole is not told, and each instance counts as a card."
        return passed(listed(kept), why, evidence="NVML")
    if context.snapshot is None:
        return unknown(NOT_ASKED)
    return passed("whole cards", evidence="/proc/version, NVML")
