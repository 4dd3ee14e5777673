"""Rows about processors: what they can compute, which of them may work, how fast the system lets them run."""

from __future__ import annotations

from engine.advice.doctor.check import Fix, Outcome, count, failed, passed, row, unknown, warned, without_object
from engine.advice.doctor.context import Context
from engine.hardware import sysfs
from engine.hardware.thermal import celsius, cpu_monitors

GROUP = "Processor"
NEEDED = ("avx2", "fma", "f16c")
SHOWN = ("avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
CLOSE_C = 5.0
"""So near to the temperature at which it slows down it is at its limit."""
USUAL_LIMIT_C = 95.0
"""Where a sensor does not tell its limit."""
STEAL_PERCENT = 3.0
SPAN_S = 0.3
"""Two readings that lie closer together tell nothing about a share of time."""

PERFORMANCE = Fix(
    "powerprofilesctl set performance",
    "asks the desktop's power service for full speed until the next restart; needs no root",
    "powerprofilesctl set balanced",
)


@row("D-CPU-1", GROUP, "Instruction set")
def instruction_set(context: Context) -> Outcome:
    """The kernels for processors need AVX2, FMA and F16C; what goes beyond makes them faster."""
    flags = _flags(context)
    if not flags:
        return unknown("The system does not list what the processor can do.", "/proc/cpuinfo")
    lacking = [flag for flag in NEEDED if flag not in flags]
    if not lacking:
        extra = [flag for flag in SHOWN if flag in flags]
        why = "The kernels that suit it best are chosen when a model loads."
        return passed(" ".join((*NEEDED, *extra)), why, evidence="flags in /proc/cpuinfo")
    missing = ", ".join(flag.upper() for flag in lacking)
    if "hypervisor" in flags:
        fix = Fix(
            "qm set VMID --cpu host",
            "on the host, for Proxmox: shows the guest the processor as it is (libvirt: <cpu mode='host-passthrough'/>); "
            "the guest has to be started anew",
            "set the guest's processor type back to what it was",
        )
        why = "The kernels for processors need it. The virtual machine may hide it: give it the processor type `host`."
        return failed(f"the virtual machine shows no {missing}", why, fix, evidence="flags in /proc/cpuinfo")
    why = "The kernels for processors need it; a model that lies on cards alone still has parts that run here."
    return failed(f"this processor lacks {missing}", why, evidence="flags in /proc/cpuinfo")


def _flags(context: Context) -> frozenset[str]:
    for line in sysfs.lines(context.root / "proc/cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


@row("D-CPU-2", GROUP, "Workers and cores")
def workers(context: Context) -> Outcome:
    """More workers than physical cores share them, which is slower on most machines, unless it was tried."""
    machine = context.topology
    usable, threads = len(machine.usable_cores), len(machine.allowed_cpus)
    cores = f"{count(usable, 'core')} with {count(threads, 'thread')}"
    n_workers = context.model.n_workers if context.model else 0
    if not n_workers:
        return passed(cores, "One worker a core is planned: a second thread on a core adds no memory speed.")
    found = f"{count(n_workers, 'worker')} on {cores}"
    if n_workers <= usable:
        return passed(found, "Each worker has a core of its own.")
    if context.model and context.model.tuned:
        return passed(found, "This number came out best when several were tried on this machine.")
    fix = Fix("", "set the number of workers to automatic in the settings, or let it be tuned", "set the number again")
    return warned(found, "Workers that share a core wait for each other; on most machines that is slower. Let it be tuned.", fix)


@row("D-CPU-3", GROUP, "Cores that may be used")
def allowed(context: Context) -> Outcome:
    """What cpusets and quotas of control groups, as in containers, leave of the machine."""
    machine = context.topology
    usable, all_cores = len(machine.usable_cores), len(machine.cores)
    time_of = machine.quota_cores
    if not usable:
        return failed(f"none of {count(all_cores, 'core')}", "Nothing can be computed here.", *_more_cores(context))
    found = f"{usable} of {count(all_cores, 'core')}"
    if time_of is not None and time_of < usable:
        found += f", and the time of {time_of:g} of them"
    evidence = f"cgroup version {machine.cgroup_version}" if machine.cgroup_version else ""
    if min(usable, time_of if time_of is not None else usable) >= all_cores / 2:
        return passed(found, "", evidence=evidence)
    where = "This container" if machine.container else "This program"
    why = f"{where} may use less than half of the machine's cores; workers are planned for what it may use."
    return warned(found, why, *_more_cores(context), evidence=evidence)


def _more_cores(context: Context) -> tuple[Fix, ...]:
    if not context.topology.container:
        return (Fix("", "start the program outside of the control group or taskset that limits it", "start it there again"),)
    last = max(context.topology.cpus)
    return (
        Fix(
            f"docker run --cpuset-cpus 0-{last} ...",
            "on the host: gives the container every processor; start it anew with this option, and without --cpus",
            "start it with the options from before",
        ),
    )


@row("D-CPU-4", GROUP, "Clock policy")
def clock_policy(context: Context) -> Outcome:
    """Under drivers in active mode `powersave` is the normal governor, and the preference beside it decides."""
    facts = context.topology.facts
    if facts.governor is None:
        return unknown("The system does not tell how it sets clocks, as in most virtual machines.", "scaling_governor")
    words = [facts.frequency_driver or "driver unknown", facts.governor]
    if facts.energy_preference:
        words.append(f"preference {facts.energy_preference}")
    found, evidence = ", ".join(words), "/sys/devices/system/cpu/cpu*/cpufreq"
    if not facts.held_slow:
        normal = facts.governor == "powersave"
        why = "With this driver the governor powersave is the normal one: it clocks up under load." if normal else ""
        return passed(found, why, evidence=evidence)
    by_governor = Fix(
        "sudo cpupower frequency-set -g performance",
        "lets processors run at full clock under load until the next restart",
        f"sudo cpupower frequency-set -g {facts.governor}",
    )
    fixes = (PERFORMANCE,) if facts.energy_preference == "power" else (PERFORMANCE, by_governor)
    return warned(found, "The system holds the processor slow to save power.", *fixes, evidence=evidence)


@row("D-CPU-5", GROUP, "Temperature")
def temperature(context: Context) -> Outcome:
    """How far from its limit the hottest sensor is, and whether clocks were lowered because of heat."""
    hottest, limit = _hottest(context)
    throttled = context.now.throttled
    before = context.before.throttled if context.before else None
    rising = throttled is not None and before is not None and throttled > before
    if hottest is None and throttled is None:
        return unknown("This system has no temperature sensor of the processor, as in virtual machines.", "/sys/class/hwmon")
    parts = [] if hottest is None else [f"{hottest:.0f} °C" + ("" if limit is None else f" of {limit:.0f} °C")]
    if throttled:
        parts.append(f"clocks lowered {count(throttled, 'time')} since the start")
    found = ", ".join(parts) or "clocks never lowered because of heat"
    if rising or (hottest is not None and hottest >= (USUAL_LIMIT_C if limit is None else limit - CLOSE_C)):
        fix = Fix("", "free the air's way, clean the cooler, renew its paste, or raise the fans in the firmware", "")
        return warned(found, "The processor is at its temperature limit and lowers its clock.", fix, evidence="/sys/class/hwmon")
    return passed(found, "" if limit is not None else "The sensor does not tell its limit.", evidence="/sys/class/hwmon")


def _hottest(context: Context) -> tuple[float | None, float | None]:
    """(degrees, the degrees at which that sensor's part slows down), of the sensor that is nearest to its limit."""
    found = []
    for monitor in cpu_monitors(context.root):
        for path in sorted(monitor.glob("temp*_input")):
            value = celsius(path)
            if value is not None:
                limits = [celsius(path.with_name(path.name.replace("_input", end))) for end in ("_crit", "_max")]
                found.append((value, next((one for one in limits if one is not None), None)))
    known = [one for one in found if one[1] is not None]
    if known:
        return min(known, key=lambda one: (one[1] or 0.0) - one[0])
    return max(found, key=lambda one: one[0], default=(None, None))


@row("D-CPU-6", GROUP, "Mains or battery")
def battery(context: Context) -> Outcome:
    """A computer on its battery runs slower, and not for long."""
    folder = context.root / "sys/class/power_supply"
    try:
        supplies = sorted(folder.iterdir())
    except OSError:
        supplies = []
    if not any(sysfs.text(one / "type") == "Battery" or (one / "status").exists() for one in supplies):
        return without_object("This computer has no battery.")
    if context.topology.facts.on_battery:
        fix = Fix("", "plug in the mains adapter", "")
        return warned("on battery", "Clocks are lower on a battery, and it is soon empty.", fix, evidence=str(folder))
    return passed("on mains", evidence=str(folder))


@row("D-CPU-7", GROUP, "Time taken by the host")
def steal(context: Context) -> Outcome:
    """Of a virtual machine's time, what its host gave to others."""
    now, before = context.now, context.before
    if now.ticks is None or now.steal is None:
        return unknown("The system does not count the time of processors.", "/proc/stat")
    ticks, stolen, span = now.ticks, now.steal, "since the start"
    if before is not None and before.ticks is not None and before.steal is not None and now.time_s - before.time_s >= SPAN_S:
        ticks, stolen, span = now.ticks - before.ticks, now.steal - before.steal, "now"
    share = 100 * stolen / ticks if ticks > 0 else 0.0
    found = f"{share:.1f} % {span}"
    if share <= STEAL_PERCENT:
        return passed(found, evidence="/proc/stat")
    fix = Fix("", "ask who runs the host for processors of your own, or run where nobody else does", "")
    why = "The host of this virtual machine is busy with others; each step of the model waits for the slowest core."
    return warned(found, why, fix, evidence="/proc/stat")


@row("D-CPU-8", GROUP, "Threads and sleep states")
def threads(context: Context) -> Outcome:
    """Facts that people are told to change in the firmware; what counts is how many workers there are."""
    machine, folder = context.topology, "sys/devices/system/cpu/cpu0/cpuidle"
    states = [sysfs.text(path / "name") or "" for _, path in sysfs.numbered(context.root / folder, "state")]
    off = [path for _, path in sysfs.numbered(context.root / folder, "state") if sysfs.number(path / "disable") == 1]
    found = "two threads a core" if machine.smt else "one thread a core"
    if states:
        found += f", sleep states {' '.join(one for one in states if one)}" + (f", {len(off)} of them off" if off else "")
    why = "Both may stay as they are: one worker a core is planned, and a core that sleeps leaves power to the others."
    return passed(found, why, evidence=f"/sys/devices/system/cpu/smt, /{folder}")
