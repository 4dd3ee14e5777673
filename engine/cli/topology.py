"""`layerdeck topology`: what the machine is made of, what this process may use of it, and which cores would work."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.cli.options import add_json_option
from engine.cli.output import write_json, write_text
from engine.errors import InvalidRequest
from engine.hardware.cpu_list import MAX_CPUS, format_cpus, wanted_cpus
from engine.hardware.topology import Topology
from engine.hardware.topology_read import read_topology, topology
from engine.hardware.worker_plan import CorePlan, plan_cores


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `topology`."""
    parser.add_argument("--root", type=Path, default=None, metavar="DIR", help="a folder with proc and sys of another machine")
    parser.add_argument("-t", "--threads", default="", metavar="N|LIST", help="plan for N workers, or for 0-7,16-23")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Writes the machine and its worker plan."""
    if args.root is not None and not args.root.is_dir():
        raise InvalidRequest(f"{args.root}: this is no folder; give one that holds proc and sys")
    machine = topology() if args.root is None else read_topology(args.root)
    plan = planned(machine, args.threads)
    if args.json:
        write_json(as_json(machine, plan))
    else:
        write_text("".join(f"{line}\n" for line in lines(machine, plan)))
    return 0


def planned(machine: Topology, threads: str) -> CorePlan:
    """The plan for what `-t` says. Raises: InvalidRequest."""
    if threads.isdecimal() and len(threads) <= len(str(MAX_CPUS)):  # of another machine, which may be larger than a team can be
        return plan_cores(machine, min(int(threads), MAX_CPUS))
    return plan_cores(machine, cpus=wanted_cpus(threads) if threads else ())


def as_json(machine: Topology, plan: CorePlan) -> dict[str, Any]:
    """The machine as one object; lists of processors as the kernel writes them."""
    values = asdict(machine)
    values["nodes"] = [one | {"cpus": format_cpus(one["cpus"])} for one in values["nodes"]]
    values["cores"] = [one | {"cpus": format_cpus(one["cpus"])} for one in values["cores"]]
    values |= {key: format_cpus(values[key]) for key in ("cpus", "allowed_cpus")}
    values["smt"] = machine.smt
    values["usable_cores"] = len(machine.usable_cores)
    values["usable_nodes"] = list(machine.usable_nodes)
    values["worker_plan"] = {
        "n_workers": len(plan.workers),
        "pinned": -1 not in plan.workers,
        "workers": format_cpus(cpu for cpu in plan.workers if cpu >= 0),
        "kept": format_cpus(plan.kept),
        "notes": list(plan.notes),
    }
    return values


def lines(machine: Topology, plan: CorePlan) -> list[str]:
    """The machine for people."""
    found = [
        f"{machine.facts.name}: {_count(machine.sockets, 'socket')}, {_count(len(machine.nodes), 'NUMA node')}, "
        f"{_count(len(machine.l3_groups), 'L3 group')}, {_count(len(machine.cores), 'core')}, {_count(machine.n_cpus, 'thread')}"
    ]
    for node in machine.nodes:
        size = "memory unknown" if node.memory_bytes is None else f"{node.memory_bytes / 1e9:.1f} GB"
        cores = [core for core in machine.cores if core.node == node.node]
        groups = len({core.l3 for core in cores})
        what = f"{_count(len(cores), 'core')} in {_count(groups, 'L3 group')}" if cores else "memory only"
        found.append(f"  node {node.node}: {size}, {what}{'' if not node.cpus else f', threads {format_cpus(node.cpus)}'}")
    for gpu in machine.gpus:
        where = "" if gpu.node is None else f", node {gpu.node}"
        link = "" if gpu.link_width is None else f", {gpu.link_width} of {gpu.link_width_max} lanes"
        found.append(f"  {gpu.maker} card {gpu.pci}{where}{link}{', asleep' if gpu.asleep else ''}")
    if machine.allowed_cpus != machine.cpus:
        found.append(f"  this program may use threads {format_cpus(machine.allowed_cpus)}")
    pinned = format_cpus(cpu for cpu in plan.workers if cpu >= 0) or "anywhere"
    kept = f", {_count(len(plan.kept), 'core')} kept back ({format_cpus(plan.kept)})" if plan.kept else ""
    found.append(f"  {_count(len(plan.workers), 'worker')} on {pinned}{kept}")
    return found + [f"  note: {note}" for note in (*plan.notes, *machine.degraded)]


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
