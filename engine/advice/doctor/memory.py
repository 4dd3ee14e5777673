"""Rows about the machine's memory: whether the model fits, how fast it is, what else lies in it."""

from __future__ import annotations

from engine.advice.doctor.check import Fix, Outcome, failed, gb, passed, row, unknown, warned
from engine.advice.doctor.context import Context
from engine.hardware import memory, sysfs

GROUP = "Memory"
SPARE_BYTES = 4 << 30
"""What the system and other programs are left with."""
SWAPPED_BYTES = 64 << 20
UNUSED_SHARE = 0.1
"""Of all memory, what reserved huge pages may hold unused."""
MEMLOCK = "Max locked memory"

LESS = Fix(
    "", "move layers to a GPU, or choose a smaller quantisation or a shorter context, in the placement editor", "undo there"
)
CLOSE = Fix("", "close programs that hold much memory", "")


@row("D-MEM-1", GROUP, "Room for the model")
def fits(context: Context) -> Outcome:
    """What may still be taken, control groups considered, against what the model needs of it."""
    free, total = _available(context)
    if free is None:
        return unknown("The system does not tell how much memory is free.", "/proc/meminfo")
    found, evidence = f"{gb(free)} of {gb(total)} free" if total else f"{gb(free)} free", "MemAvailable, control groups"
    model = context.model
    if model is None or not model.cpu_bytes:
        return passed(found, "No model is loaded that needs it.", evidence=evidence)
    if model.is_loaded and not model.mapped:
        return passed(f"the model holds {gb(model.cpu_bytes)}, {found}", "", evidence=evidence)
    found = f"needs {gb(model.cpu_bytes)}, {found}"
    if model.cpu_bytes + (0 if model.is_loaded else SPARE_BYTES) <= free:
        return passed(found, evidence=evidence)
    if model.mapped:
        why = "Mapped files are read from the disk again when memory is short: it would read for every word."
        return warned(found, why, LESS, CLOSE, evidence=evidence)
    short = model.cpu_bytes + SPARE_BYTES - free
    why = f"It is {gb(short)} short, with {gb(SPARE_BYTES)} left to the system."
    return failed(found, why, LESS, CLOSE, evidence=evidence)


def _available(context: Context) -> tuple[int | None, int]:
    info = context.meminfo
    limits = tuple(memory.groups(context.root))
    told = [info["MemAvailable"]] if "MemAvailable" in info else []
    total = min([*([info["MemTotal"]] if "MemTotal" in info else []), *(limit for limit, _ in limits)], default=0)
    return min([*told, *(max(0, limit - used) for limit, used in limits)], default=None), total


@row("D-MEM-5", GROUP, "Swap")
def swap(context: Context) -> Outcome:
    """Swapped memory of this program, and whether anything comes back from swap now."""
    info = context.meminfo
    if "SwapTotal" not in info:
        return unknown("The system does not tell of its swap.", "/proc/meminfo")
    used, own = max(0, info["SwapTotal"] - info.get("SwapFree", 0)), _own_swap(context)
    swappiness = context.number("proc/sys/vm/swappiness")
    found = f"{gb(used)} of {gb(info['SwapTotal'])} used" if info["SwapTotal"] else "no swap"
    if own:
        found += f", {gb(own)} of this program"
    if swappiness is not None:
        found += f", swappiness {swappiness}"
    before, now = context.before.swapped_in if context.before else None, context.now.swapped_in
    rising = before is not None and now is not None and now > before
    if own <= SWAPPED_BYTES and not rising:
        why = "Without swap, a machine that runs out of memory ends a program." if not info["SwapTotal"] else ""
        return passed(found, why, evidence="/proc/meminfo, /proc/self/status, /proc/vmstat")
    fixes = [CLOSE]
    if swappiness is not None and swappiness > 10:
        fixes.append(
            Fix(
                "sudo sysctl vm.swappiness=10",
                "makes the kernel give up cached files before it swaps programs, until the next restart; it adds no memory",
                f"sudo sysctl vm.swappiness={swappiness}",
            )
        )
    why = "Part of what is needed is on the disk." if own > SWAPPED_BYTES else "Memory is coming back from the disk right now."
    return warned(found, why, *fixes, evidence="/proc/meminfo, /proc/self/status, /proc/vmstat")


def _own_swap(context: Context) -> int:
    words = sysfs.fields(context.root / "proc/self/status").get("VmSwap", "").split()
    return (sysfs.as_number(words[0]) or 0) << 10 if words else 0


@row("D-MEM-6", GROUP, "Memory that may be locked")
def locked(context: Context) -> Outcome:
    """Only who wants memory that is never swapped needs this limit."""
    line = next((one for one in sysfs.lines(context.root / "proc/self/limits") if one.startswith(MEMLOCK)), "")
    words = line.removeprefix(MEMLOCK).split()
    limit = None if not words else (-1 if words[0] == "unlimited" else sysfs.as_number(words[0]))
    if limit is None:
        return unknown("The system does not tell the limit.", "/proc/self/limits")
    found = "no limit" if limit < 0 else f"{gb(limit)} may be locked"
    wanted = context.model.cpu_bytes if context.model and context.model.locked else 0
    if limit < 0 or wanted <= limit:
        return passed(found, "" if wanted else "Nothing asks for it.", evidence="/proc/self/limits")
    fix = Fix(
        "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/90-memlock.conf",
        "lets every user lock memory, from the next login on",
        "sudo rm /etc/security/limits.d/90-memlock.conf",
    )
    why = f"Locking was switched on and {gb(wanted)} are to be locked; the rest stays unlocked, which works as well."
    return warned(found, why, fix, evidence="/proc/self/limits")


@row("D-MEM-7", GROUP, "Reserved memory")
def reserved(context: Context) -> Outcome:
    """Huge pages that nobody uses, and a kernel that promises no more memory than there is."""
    info = context.meminfo
    total, overcommit = info.get("MemTotal"), context.number("proc/sys/vm/overcommit_memory")
    if total is None and overcommit is None:
        return unknown("The system does not tell of reserved memory.", "/proc/meminfo")
    pages, size = info.get("HugePages_Total", 0), info.get("Hugepagesize", 0)
    unused = info.get("HugePages_Free", 0) * size
    found = f"{gb(pages * size)} of huge pages, {gb(unused)} of them unused" if pages else "no huge pages are reserved"
    if total and unused > UNUSED_SHARE * total:
        fix = Fix(
            "sudo sysctl vm.nr_hugepages=0",
            "gives unused reserved pages back until the next restart; programs that were set up for them want them again",
            f"sudo sysctl vm.nr_hugepages={pages}",
        )
        return warned(found, "Reserved huge pages that nobody uses cannot hold a model here.", fix, evidence="/proc/meminfo")
    if overcommit == 2:
        fix = Fix(
            "sudo sysctl vm.overcommit_memory=0",
            "lets the kernel promise memory as it usually does, until the next restart",
            "sudo sysctl vm.overcommit_memory=2",
        )
        why = "The kernel refuses memory by its own count (overcommit mode 2), also while much of it is free."
        return warned(f"{found}, overcommit mode 2", why, fix, evidence="/proc/sys/vm/overcommit_memory")
    return passed(found, evidence="/proc/meminfo, /proc/sys/vm/overcommit_memory")


@row("D-MEM-8", GROUP, "Memory errors")
def errors(context: Context) -> Outcome:
    """What memory with error correction has found: corrected errors, and those that could not be."""
    corrected, uncorrected = dict(context.now.corrected), dict(context.now.uncorrected)
    if not corrected and not uncorrected:
        return unknown("This machine counts no memory errors: its memory or its driver cannot.", "/sys/devices/system/edac")
    n_corrected, n_lost = sum(corrected.values()), sum(uncorrected.values())
    found, evidence = f"{n_corrected:,} corrected, {n_lost:,} not", "/sys/devices/system/edac/mc/mc*/{ce,ue}_count"
    where = ", ".join(name for name in corrected if corrected[name] or uncorrected.get(name))
    fix = Fix(
        "grep -H . /sys/devices/system/edac/mc/mc*/dimm*/dimm_ce_count",
        "shows which module it is; replace that one, or seat it again",
        "",
    )
    if n_lost:
        return failed(found, f"A memory module loses data ({where}); answers may be wrong.", fix, evidence=evidence)
    before = dict(context.before.corrected) if context.before else None
    if before is not None and any(errors > before.get(name, errors) for name, errors in corrected.items()):
        return warned(found, f"Errors are being corrected right now ({where}): a module is failing.", fix, evidence=evidence)
    why = f"All were corrected ({where}); more of them from day to day mean a failing module." if n_corrected else ""
    return passed(found, why, evidence=evidence)


@row("D-MEM-9", GROUP, "Huge pages on request")
def huge_pages(context: Context) -> Outcome:
    """Transparent huge pages make large tables of pages small, for a few percent of speed."""
    path = "sys/kernel/mm/transparent_hugepage/enabled"
    text = context.text(path)
    if text is None:
        return unknown("The system does not tell.", f"/{path}")
    chosen = next((word.strip("[]") for word in text.split() if word.startswith("[")), text)
    if chosen != "never":
        return passed(chosen, "Weights are put on huge pages.", evidence=f"/{path}")
    fix = Fix(
        f"sudo sh -c 'echo madvise > /{path}'",
        "lets programs ask for huge pages, until the next restart",
        f"sudo sh -c 'echo never > /{path}'",
    )
    return passed(chosen, "Weights lie on small pages; huge ones can gain a few percent.", fix, evidence=f"/{path}")


@row("D-MEM-10", GROUP, "Memory pressure")
def pressure(context: Context) -> Outcome:
    """Share of the last ten seconds in which everything waited for memory (the kernel's PSI)."""
    line = next((one for one in sysfs.lines(context.root / "proc/pressure/memory") if one.startswith("full ")), "")
    word = next((one.removeprefix("avg10=") for one in line.split() if one.startswith("avg10=")), "")
    try:
        share = float(word)
    except ValueError:
        return unknown("This kernel does not measure it (psi=1 on its command line switches it on).", "/proc/pressure/memory")
    found = f"everything waited {share:.1f} % of the last 10 s"
    if share <= 5:
        return passed(found, evidence="/proc/pressure/memory")
    return warned(found, "The whole computer is short of memory.", CLOSE, LESS, evidence="/proc/pressure/memory")
