"""Rows about how fast memory can be read, which is what answers from the processor's memory are limited by."""

from __future__ import annotations

from engine.advice.doctor.check import Fix, Outcome, count, passed, row, unknown, warned
from engine.advice.doctor.context import Context
from engine.advice.doctor.dimms import Modules, read_modules

GROUP = "Memory"
LOW_SHARE = 0.6
"""Of the theoretical speed. Sound machines reach 75 to 90 %."""
LIST = Fix("sudo dmidecode -t memory", "lists the slots, what is in them and how fast it runs; changes nothing", "")
FILL = Fix("", "add modules of the same kind in the slots that the board's manual names first", "")
CALIBRATE = Fix("layerdeck estimate --calibrate", "measures memory, kernels and links, some seconds at full load", "")


@row("D-MEM-2", GROUP, "Memory channels")
def channels(context: Context) -> Outcome:
    """Each channel that is empty is a part of the speed that is missing."""
    modules = read_modules(context.root)
    if modules is None:
        why = "The system tells it root alone; what was measured of its speed says as much. " + _measured_words(context)
        return unknown(why.strip(), "/sys/devices/system/edac, /sys/firmware/dmi/tables/DMI")
    found, evidence = _modules_words(modules), "/sys/devices/system/edac, /sys/firmware/dmi/tables/DMI"
    if modules.channels is not None and modules.filled is not None and modules.filled < modules.channels:
        missing = 1 - modules.filled / modules.channels
        why = f"Memory speed grows with filled channels: about {100 * missing:.0f} % of what this board could give is missing."
        return warned(found, why, FILL, LIST, evidence=evidence)
    if modules.channels is None and modules.n == 1:
        return warned(
            found, "One module fills one channel; with two, memory would be about twice as fast.", FILL, evidence=evidence
        )
    why = "All channels are filled." if modules.channels is not None else "Whether channels are empty is not told here."
    return passed(found, why, *(() if modules.channels is not None else (LIST,)), evidence=evidence)


def _modules_words(modules: Modules) -> str:
    if modules.channels is not None and modules.filled is not None:
        found = f"{count(modules.n, 'module')} in {modules.filled} of {count(modules.channels, 'channel')}"
    elif modules.filled is not None:
        found = f"{count(modules.n, 'module')} in {count(modules.filled, 'channel')}"
    else:
        found = count(modules.n, "module") + ("" if modules.slots is None else f" in {count(modules.slots, 'slot')}")
    return found + ("" if modules.mt_s is None else f", {modules.mt_s:,} MT/s")


def _measured_words(context: Context) -> str:
    return "" if not context.node_gbps else f"Measured: {sum(context.node_gbps):.0f} GB/s."


@row("D-MEM-3", GROUP, "Measured memory speed")
def measured(context: Context) -> Outcome:
    """What reading gave when this machine was calibrated, against what its modules give in theory."""
    if not context.node_gbps:
        why = "This machine has not been calibrated; estimates assume a speed until it is."
        return Outcome("unknown", "not measured yet", why, (CALIBRATE,), "")
    total, modules = sum(context.node_gbps), read_modules(context.root)
    each = "" if len(context.node_gbps) == 1 else f" ({', '.join(f'{one:.0f}' for one in context.node_gbps)} by node)"
    theory = None if modules is None else modules.theoretical_gbps
    found = f"{total:.0f} GB/s{each}" + ("" if theory is None else f" of {theory:.0f} possible")
    uneven = len(context.node_gbps) > 1 and min(context.node_gbps) < LOW_SHARE * max(context.node_gbps)
    if uneven:
        why = "One node's memory is much slower than another's: it has fewer modules, or slower ones."
        return warned(found, why, LIST, CALIBRATE, evidence="calibration")
    if theory is not None and total < LOW_SHARE * theory:
        way = Fix(
            "", "look in the firmware whether memory runs at the speed of its modules (profile XMP or EXPO)", "set it back there"
        )
        why = f"Less than {100 * LOW_SHARE:.0f} % of what the modules could give; three quarters and more is usual."
        return warned(found, why, way, LIST, CALIBRATE, evidence="calibration")
    return passed(found, "This is the ceiling of what answers from this memory can reach.", evidence="calibration")


@row("D-MEM-4", GROUP, "Chiplets")
def chiplets(context: Context) -> Outcome:
    """Each group of cores with a common L3 cache has a link of its own to memory; few groups can be the limit."""
    machine = context.topology
    groups = machine.l3_groups
    if any("cache" in one for one in machine.degraded):
        return unknown("The system does not tell which cores share a cache.", "/sys/devices/system/cpu/cpu*/cache")
    sizes = sorted({len(group.cores) for group in groups})
    cores = count(sizes[0], "core") if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} cores"
    found = f"{count(len(groups), 'L3 cache')}, {cores} each" if len(groups) > 1 else f"one L3 cache, {cores}"
    per_socket = len(groups) / max(1, machine.sockets)
    amd = "AMD" in machine.facts.name
    if amd and 1 < per_socket <= 4:
        why = "Each chiplet has a link of its own; with so few of them the links, not the memory, can set the limit. Measure it."
        return passed(found, why, CALIBRATE, evidence="/sys/devices/system/cpu/cpu*/cache/index3")
    return passed(found, "Workers are spread evenly over them." if len(groups) > 1 else "", evidence="/sys/devices/system/cpu")
