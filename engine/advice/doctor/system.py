"""Rows about the system and this program: who else computes, who can reach us, what was ended for memory, versions."""

from __future__ import annotations

import ipaddress
import locale
import os
import time

import engine
from engine.advice.doctor.check import Fix, Outcome, count, failed, gb, listed, passed, row, unknown, warned, without_object
from engine.advice.doctor.context import Context
from engine.advice.doctor.kernel_log import read_kernel_log
from engine.advice.doctor.system_facts import engine_pids, os_release, other_engines
from engine.hardware import sysfs
from engine.hardware.cgroups import read_limits

GROUP = "System"
TESTED = "Layerdeck is developed on Debian 12 (glibc 2.36); the window needs glibc 2.34. Newer systems are expected to work."
HOLDS_RAM = 1_000_000_000
HOLDS_VRAM = 300_000_000
EARLIEST = 1_735_689_600
"""2025-01-01: a clock before it is wrong, and certificates seem not valid yet."""
SHOWN_ENV = (
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "PYTORCH_CUDA_ALLOC_CONF",
    "MALLOC_ARENA_MAX",
)
CLEAN_UP = Fix("", "choose a smaller model or context, or move layers to a GPU, in the placement editor", "undo there")


@row("D-SYS-1", GROUP, "Who can use this computer's model")
def listener(context: Context) -> Outcome:
    """The address that others are served at."""
    if context.app is None or not context.app.listener:
        return without_object("No server is running.")
    address = context.app.listener
    host = address.rpartition(":")[0].strip("[]")
    if _is_loopback(host):
        return passed(address, "Programs on this computer alone can reach it.")
    if context.app.has_key:
        return passed(address, "Others on the network can reach it, with the key.")
    fix = Fix("", "serve at 127.0.0.1, or set a key, in the settings of the server", "set the address again")
    return failed(address, "Anyone on your network can use this computer's model.", fix)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@row("D-SYS-2", GROUP, "Other engines")
def engines(context: Context) -> Outcome:
    """Other programs that run models, and what they hold."""
    if not (context.root / "proc").is_dir():
        return unknown("The system does not list its programs.", "/proc")
    own = frozenset({os.getpid()}) if context.live else frozenset[int]()
    found = other_engines(context.root, own)
    if not found:
        return passed("none", evidence="/proc/*/comm")
    names, held = engine_pids(context.root, own), dict[str, int]()
    for gpu in context.snapshot.gpus if context.snapshot else ():
        for process in gpu.processes or ():
            if process.pid in names:
                held[names[process.pid]] = held.get(names[process.pid], 0) + (process.memory_bytes or 0)
    parts, heavy = [], []
    for one in found:
        words = [f"{gb(one.resident_bytes)} of memory"] if one.resident_bytes else []
        words += [f"{gb(held[one.name])} on cards"] if held.get(one.name) else []
        parts.append(f"{one.name} (process {one.pid}){': ' if words else ''}{', '.join(words)}")
        if (one.resident_bytes or 0) >= HOLDS_RAM or held.get(one.name, 0) >= HOLDS_VRAM:
            heavy.append(one.name)
    if not heavy:
        return passed(listed(parts), "They hold little now.", evidence="/proc/*/comm")
    fixes = (
        [Fix("ollama ps", "lists the models that Ollama holds; `ollama stop NAME` gives one back", "")]
        if "Ollama" in heavy
        else []
    )
    fixes.append(Fix("", f"close {' and '.join(heavy)}, or unload the model there", "start it again"))
    return warned(listed(parts), "Two engines share memory and cores: both are slower, or the second does not fit.", *fixes)


@row("D-SYS-3", GROUP, "Versions")
def versions(context: Context) -> Outcome:
    """Kernel, system and C library; nothing here decides whether a model runs."""
    kernel, system = context.text("proc/sys/kernel/osrelease"), os_release(context.root).get("PRETTY_NAME")
    parts = [one for one in (f"Linux {kernel}" if kernel else "", system or "") if one]
    if context.live:
        try:
            parts.append(str(os.confstr("CS_GNU_LIBC_VERSION") or ""))
        except (ValueError, OSError):
            parts.append("another C library than glibc")
    if not parts:
        return unknown("The system does not tell its versions.", "/proc/sys/kernel/osrelease")
    return passed(", ".join(one for one in parts if one), TESTED, evidence="/proc/sys/kernel/osrelease, os-release")


@row("D-SYS-4", GROUP, "Locale and clock")
def locale_and_clock(context: Context) -> Outcome:
    """Text that is not UTF-8, and a clock that makes certificates seem invalid."""
    if not context.live:
        return unknown("It can only be told on the machine itself.")
    encoding, now = locale.getpreferredencoding(False), time.time()
    found = f"{encoding}, {time.strftime('%Y-%m-%d %H:%M', time.localtime(now))}"
    if now < EARLIEST:
        fix = Fix(
            "sudo timedatectl set-ntp true",
            "sets the clock from the network and keeps it right",
            "sudo timedatectl set-ntp false",
        )
        return warned(found, "The clock is wrong: downloads fail, as certificates seem not valid yet.", fix, evidence="clock")
    if "utf" not in encoding.lower():
        fix = Fix("export LC_ALL=C.UTF-8", "this shell and what it starts use UTF-8", "unset LC_ALL")
        return warned(found, "Names and text outside of ASCII may be shown wrongly.", fix, evidence="locale")
    return passed(found, evidence="locale, clock")


@row("D-SYS-5", GROUP, "Ended for memory")
def out_of_memory(context: Context) -> Outcome:
    """Whether the kernel has ended programs because memory had run out, in this control group or at all."""
    events = _group_kills(context)
    log = read_kernel_log(context.root)
    if events is None and log is None:
        look = Fix("journalctl -k -g 'Out of memory'", "shows what the kernel ended; may need the group adm or root", "")
        return Outcome("unknown", "not known", "This program may not read the kernel's log.", (look,), "memory.events, /dev/kmsg")
    names = [name for _, name in log.killed] if log else []
    evidence = "memory.events, /dev/kmsg"
    if not names and not events:
        return passed("none since the start", evidence=evidence)
    found = f"{count(max(len(names), events or 0), 'program')} since the start" + (
        f" ({listed(sorted(set(names)))})" if names else ""
    )
    return warned(found, "Linux ended programs because memory had run out.", CLEAN_UP, evidence=evidence)


def _group_kills(context: Context) -> int | None:
    """`oom_kill` of this program's control group (version 2) or `oom_control` (version 1)."""
    for line in sysfs.lines(context.root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        folder = {"": "sys/fs/cgroup", "memory": "sys/fs/cgroup/memory"}.get(controllers)
        if folder is None or ".." in path.split("/"):
            continue
        for place in (f"{folder}/{path.strip('/')}", folder):
            for name in ("memory.events", "memory.oom_control"):
                for entry in sysfs.lines(context.root / place / name):
                    if entry.startswith("oom_kill "):
                        return sysfs.as_number(entry.split()[1])
    return None


@row("D-SYS-6", GROUP, "Board and firmware")
def board(context: Context) -> Outcome:
    """Names for whoever looks into the board's manual or for an update of its firmware."""
    folder = "sys/class/dmi/id"
    read = [context.text(f"{folder}/{name}") for name in ("board_vendor", "board_name", "bios_version", "bios_date")]
    if not any(read):
        return unknown("The system does not tell, as in containers.", f"/{folder}")
    vendor, name, version, date = (one or "" for one in read)
    parts = (
        " ".join(one for one in (vendor, name) if one),
        " ".join(one for one in ("firmware" if version else "", version, date) if one),
    )
    return passed(", ".join(one for one in parts if one), evidence=f"/{folder}")


@row("D-SYS-7", GROUP, "Environment variables")
def environment(context: Context) -> Outcome:
    """Variables that change which cards and how many threads are seen."""
    names = (*SHOWN_ENV, *sorted(name for name in context.env if name.startswith("LAYERDECK_")))
    found = [f"{name}={context.env[name][:60]}" for name in names if context.env.get(name)]
    hidden = context.env.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and hidden.strip() in ("", "-1"):
        fix = Fix(
            "unset CUDA_VISIBLE_DEVICES",
            "shows all cards to programs that this shell starts",
            f"export CUDA_VISIBLE_DEVICES={hidden!r}",
        )
        return warned("CUDA_VISIBLE_DEVICES is empty", "It hides every card.", fix, evidence="environment")
    if context.env.get("CUDA_LAUNCH_BLOCKING", "0").strip() not in ("", "0"):
        fix = Fix(
            "unset CUDA_LAUNCH_BLOCKING",
            "lets programs that this shell starts go on while a card works",
            "export CUDA_LAUNCH_BLOCKING=1",
        )
        why = "Each launch waits for the card, which stands still in between: it is meant for finding faults."
        return warned("CUDA_LAUNCH_BLOCKING is set", why, fix, evidence="environment")
    if "OMP_NUM_THREADS" in context.env:
        why = "OMP_NUM_THREADS has no effect on Layerdeck's kernels, which do not use OpenMP."
        return passed(listed(found, 8), why, evidence="environment")
    return passed(listed(found, 8) if found else "none that matter", evidence="environment")


@row("D-SYS-8", GROUP, "Layerdeck")
def program(context: Context) -> Outcome:
    """Version, build, and which kernels are active on this processor."""
    stamp = engine.build()
    found = f"{engine.VERSION}{f' (build {stamp})' if stamp else ''}"
    if not context.live:
        return passed(found, "Which kernels are active is told on the machine itself.")
    from kernels_pyx.cpu_features import active_isa

    return passed(f"{found}, kernels {active_isa()}", "`layerdeck selftest` compares each with its plain form.")


@row("D-SYS-9", GROUP, "Container")
def container(context: Context) -> Outcome:
    """What a container's limits leave; within them everything works as outside."""
    limits = read_limits(context.root)
    if not limits.container:
        return without_object("This is no container.")
    parts = [f"memory at most {gb(limits.memory_bytes)}"] if limits.memory_bytes is not None else []
    parts += [f"the time of {limits.quota_cores:g} cores"] if limits.quota_cores is not None else []
    why = "Loads are planned within it."
    return passed(", ".join(parts) or "no limits", why if parts else "", evidence=f"cgroup version {limits.version}")
