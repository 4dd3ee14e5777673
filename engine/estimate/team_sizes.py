"""How many workers each node of memory has: what estimates reckon with, by the machine, the options, and who works already."""

from __future__ import annotations

from engine.hardware.machine import Machine
from engine.hardware.topology_read import topology
from engine.placement.options import LoadOptions
from engine.placement.placement import WorkerPlan, plan_workers


def team_sizes(machine: Machine, options: LoadOptions, workers: WorkerPlan | None = None) -> dict[int, int]:
    """Workers by the number of the node. workers: of a placement; they count on the machine on which they run, while on one that
    a file describes the options do, dealt out evenly, or one works on each core.

    Raises:
        InvalidRequest: options with processors that cannot be used here.
    """
    numbers = machine.node_numbers
    if not is_here(machine):
        n = options.n_threads or len(options.cores)
        return _dealt(numbers, n) if n else {one.node: one.n_cores for one in machine.nodes}
    cores = (workers or plan_workers(options.n_threads, options.cores)).cores
    node_of = {cpu: one.node for one in machine.nodes for cpu in one.cpus}
    found = dict.fromkeys(numbers, 0)
    for cpu in cores:
        if cpu in node_of:
            found[node_of[cpu]] += 1
    n_free = sum(cpu not in node_of for cpu in cores)
    for node, n in _dealt(tuple(one.node for one in machine.nodes if one.cpus) or numbers, n_free).items():
        found[node] += n
    return found


def is_here(machine: Machine) -> bool:
    """Whether it is this machine, whose processors are known by their numbers."""
    if machine.name:
        return False
    if len(machine.nodes) > 1:
        return any(one.cpus for one in machine.nodes)
    return machine.nodes[0].n_cores == len(topology().usable_cores)


def _dealt(nodes: tuple[int, ...], n: int) -> dict[int, int]:
    each, rest = divmod(n, len(nodes))
    return {node: each + (i < rest) for i, node in enumerate(nodes)}
