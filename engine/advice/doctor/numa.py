"""Rows about memory nodes: how many there are, where weights lie, whether the system lets us decide it."""

from __future__ import annotations

import ctypes
import errno
import platform

from engine.advice.doctor.check import Fix, Outcome, count, listed, passed, row, unknown, warned, without_object
from engine.advice.doctor.context import Context
from engine.hardware.cpu_list import format_cpus

GROUP = "Memory nodes"
ONE = "This machine has one memory node with cores."
LOPSIDED = 0.7
WELL_PLACED = 0.9
_GET_MEMPOLICY = {"x86_64": 239, "aarch64": 236}
PLACE_AGAIN = Fix("", "load the model again with its weights copied, not mapped: each node then gets its part", "map it again")
WITH_NICE = Fix(
    "docker run --cap-add SYS_NICE ...",
    "on the host: lets programs in the container choose memory nodes; start it anew with this option",
    "start it without the option",
)


def _nodes_with_cores(context: Context) -> int:
    return sum(bool(node.cpus) for node in context.topology.nodes)


def _single(context: Context) -> Outcome | None:
    """What to say where there are no two nodes to choose between, or none are told; None where there are."""
    if _nodes_with_cores(context) > 1:
        return None
    if any("NUMA" in one for one in context.topology.degraded):
        return unknown("The system does not tell of memory nodes.", "/sys/devices/system/node")
    return without_object(ONE)


@row("D-NUMA-1", GROUP, "Nodes")
def nodes(context: Context) -> Outcome:
    """Nodes, their processors, memory and distances; several on one socket are the firmware's choice."""
    machine = context.topology
    if any("NUMA" in one or "node" in one for one in machine.degraded):
        return unknown("The system does not tell of memory nodes.", "/sys/devices/system/node")
    parts = []
    for node in machine.nodes:
        size = "" if node.memory_bytes is None else f", {node.memory_bytes / 1e9:.0f} GB"
        parts.append(f"node {node.node}: {f'threads {format_cpus(node.cpus)}' if node.cpus else 'memory only'}{size}")
    found, evidence = f"{count(len(machine.nodes), 'node')} ({listed(parts, 8)})", "/sys/devices/system/node"
    per_socket = _nodes_with_cores(context) / max(1, machine.sockets)
    if per_socket <= 1:
        far = max((max(node.distances, default=10) for node in machine.nodes), default=10)
        return passed(found, f"Distance to the farthest memory: {far} (10 is near)." if far > 10 else "", evidence=evidence)
    policy = context.model.node_policy if context.model else ""
    why = f"The firmware splits each processor into {per_socket:.0f} memory zones."
    if policy not in ("mapped", "interleave"):
        return passed(found, f"{why} Weights are split over them; measure before you change it.", evidence=evidence)
    fix = Fix(
        "",
        "set NPS=1 (nodes per socket) in the firmware, or load with copied weights split over nodes; measure both",
        "set it back",
    )
    return warned(found, f"{why} This way of loading does not use them all evenly.", fix, evidence=evidence)


@row("D-NUMA-2", GROUP, "Automatic balancing")
def balancing(context: Context) -> Outcome:
    """The kernel carries pages to where they are used; memory with a policy of its own is left alone."""
    single = _single(context)
    if single is not None:
        return single
    value = context.number("proc/sys/kernel/numa_balancing")
    if value is None:
        return unknown("The system does not tell.", "/proc/sys/kernel/numa_balancing")
    moved, before = context.now.moved, context.before.moved if context.before else None
    found = "on" if value else "off"
    if moved is not None:
        found += f", {count(moved, 'page')} moved since the start"
    if moved is not None and before is not None and moved > before:
        found += f", {count(moved - before, 'page')} just now"
    evidence = "/proc/sys/kernel/numa_balancing, /proc/vmstat"
    if not value:
        return passed(found, evidence=evidence)
    policy = context.model.node_policy if context.model else ""
    if policy in ("split", "interleave", "single") and not (context.model and context.model.denied):
        return passed(found, "The model's memory has a policy of its own, which balancing leaves alone.", evidence=evidence)
    if not policy:
        why = "Models are loaded with a policy of their own, which balancing leaves alone."
        return passed(found, why, evidence=evidence)
    fix = Fix(
        "sudo sysctl kernel.numa_balancing=0",
        "the kernel moves no pages between nodes by itself, for all programs, until the next restart",
        f"sudo sysctl kernel.numa_balancing={value}",
    )
    why = "The kernel may move this model's memory around while it works, since it lies where it was first read."
    return warned(found, why, fix, PLACE_AGAIN, evidence=evidence)


@row("D-NUMA-3", GROUP, "Where weights lie")
def lopsided(context: Context) -> Outcome:
    """Sampled pages of the loaded model by node."""
    single = _single(context)
    if single is not None:
        return single
    model = context.model
    if model is None or not model.is_loaded:
        return without_object("No model is loaded.")
    total = sum(pages for _, pages in model.node_pages)
    if not total:
        return unknown("The system does not tell where its pages lie, as in some containers.", "move_pages(2)")
    shares = {node: pages / total for node, pages in model.node_pages}
    found = ", ".join(f"node {node}: {100 * share:.0f} %" for node, share in sorted(shares.items()))
    evidence = f"{total:,} pages asked of move_pages(2)"
    if model.placed is not None and model.placed < WELL_PLACED:
        why = f"{100 * model.placed:.0f} % of the weights lie on the node that was wanted; the rest is read over the bridge."
        return warned(found, why, PLACE_AGAIN, evidence=evidence)
    fullest = max(shares, key=lambda node: shares[node])
    if model.node_policy != "single" and shares[fullest] > LOPSIDED:
        why = f"Most of the model lies on node {fullest}; the other processors read it over the bridge."
        return warned(found, why, PLACE_AGAIN, evidence=evidence)
    return passed(found, evidence=evidence)


@row("D-NUMA-4", GROUP, "Cards and nodes")
def cards(context: Context) -> Outcome:
    """Copies to a card start from memory beside it, which needs a core there."""
    machine = context.topology
    if not machine.gpus:
        return without_object("This machine has no graphics card.")
    single = _single(context)
    if single is not None:
        return single
    known = [gpu for gpu in machine.gpus if gpu.node is not None]
    if not known:
        return unknown("The board does not tell which processor a card belongs to.", "numa_node of the PCI device")
    found = ", ".join(f"{gpu.pci} on node {gpu.node}" for gpu in known)
    far = [gpu.pci for gpu in known if gpu.node not in machine.usable_nodes]
    if far:
        why = f"This program may use no core of the node of {', '.join(far)}: copies there cross the bridge."
        fix = Fix("", "let the program use cores of that node too, or put no layers on that card", "")
        return warned(found, why, fix, evidence="numa_node of the PCI device")
    why = "Memory for copies is taken beside each card." if len({gpu.node for gpu in known}) > 1 else ""
    return passed(found, why, evidence="numa_node of the PCI device")


@row("D-NUMA-5", GROUP, "Placing memory")
def policy(context: Context) -> Outcome:
    """Whether the system lets this program choose nodes; containers forbid it by default."""
    single = _single(context)
    if single is not None:
        return single
    denied = context.model.denied if context.model else ""
    if not denied and not context.live:
        return unknown("It can only be tried on the machine itself.")
    if not denied and not _refused():
        return passed("allowed", evidence="get_mempolicy(2)")
    why = f"{(denied or 'The system refuses it').rstrip('.')}; workers are pinned and memory lies where each touches it first."
    return warned("refused", why, *((WITH_NICE,) if context.topology.container else ()), evidence="get_mempolicy(2), mbind(2)")


def _refused() -> bool:
    """Asks for this thread's policy, which changes nothing and is refused together with the calls that do."""
    number = _GET_MEMPOLICY.get(platform.machine())
    if number is None:
        return False
    mode = ctypes.c_int(0)
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.syscall(number, ctypes.byref(mode), None, ctypes.c_ulong(0), None, ctypes.c_ulong(0))
    return done != 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS)
