"""Which cores work, and which are kept back for launching GPU work, the tokenizer and the window: a pure function of a Topology.

One worker a physical core, spread evenly over nodes and, within a node, over L3 groups, since each group has a link of its own to
the memory. A second thread on a core adds no bandwidth and takes time from the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.errors import InvalidRequest
from engine.hardware.cpu_list import format_cpus
from engine.hardware.topology import Core, Topology

NOT_PINNED = -1
SPARE_FROM = 8
"""From this many cores on some are kept back: on fewer, each one is missed more than it helps."""
MANY_CORES = 32


@dataclass(frozen=True, slots=True)
class CorePlan:
    """workers: one logical processor each, by node, L3 group and core; NOT_PINNED where there are more workers than processors.

    kept: a processor of each core that is kept back. notes: what is unusual about the plan, one sentence each.
    """

    workers: tuple[int, ...]
    kept: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def plan_cores(
    topology: Topology, n: int = 0, cpus: Sequence[int] = (), gpu_nodes: Sequence[int | None] | None = None
) -> CorePlan:
    """The plan for n workers, or as many as are good for this machine (0), or exactly those on `cpus`.

    gpu_nodes: the node of each GPU that will work, None where it is unknown; left out: the NVIDIA cards that there are.

    Raises:
        InvalidRequest: `cpus` that do not exist or that this process must not use.
    """
    if cpus:
        return _chosen(topology, tuple(cpus))
    if gpu_nodes is None:
        gpu_nodes = [gpu.node for gpu in topology.gpus if gpu.maker == "nvidia"]
    return _automatic(topology, gpu_nodes) if n == 0 else _counted(topology, n, gpu_nodes)


def _chosen(topology: Topology, cpus: tuple[int, ...]) -> CorePlan:
    _check(topology, cpus)
    order = {cpu: core.index for core in topology.cores for cpu in core.cpus}
    workers = tuple(sorted(set(cpus), key=lambda cpu: (order.get(cpu, len(order)), cpu)))
    n_cores = len({order.get(cpu, -1) for cpu in workers})
    return CorePlan(workers, (), _notes(topology, len(workers), n_cores))


def _check(topology: Topology, cpus: tuple[int, ...]) -> None:
    """Raises InvalidRequest with one sentence: which of the processors cannot be used, why, and which can."""
    on, allowed = frozenset(topology.cpus), frozenset(topology.allowed_cpus)
    may = f"this program may use {format_cpus(topology.allowed_cpus)}"
    absent = [cpu for cpu in cpus if cpu not in on and cpu >= topology.n_cpus]
    off = [cpu for cpu in cpus if cpu not in on and cpu < topology.n_cpus]
    outside = [cpu for cpu in cpus if cpu in on and cpu not in allowed]
    for found, why in (
        (absent, "not in this machine"),
        (off, "switched off"),
        (outside, "outside the set that its control group or affinity gives this program"),
    ):
        if found:
            what, verb = ("processor", "is") if len(found) == 1 else ("processors", "are")
            raise InvalidRequest(f"{what} {format_cpus(found)} {verb} {why}; {may}")


def _automatic(topology: Topology, gpu_nodes: Sequence[int | None]) -> CorePlan:
    large, small = _usable(topology)
    total = min(len(large) + len(small), _quota(topology))
    n_kept = _n_kept(total, len(gpu_nodes))
    kept = small[len(small) - min(n_kept, len(small)) :]
    kept += _keep(large, n_kept - len(kept), gpu_nodes)
    left = [core for core in large if core not in kept]
    wanted = min(len(left), max(1, _quota(topology) - n_kept))
    notes = []
    if small:
        notes.append(f"the {len(small)} smaller cores do not work: each step would wait for them")
    if _quota(topology) < len(large) + len(small):
        notes.append(f"the control group of this program gives it the time of {topology.quota_cores:g} cores")
    return CorePlan(_first_threads(topology, _spread(left, wanted)), _first_threads(topology, kept), tuple(notes))


def _counted(topology: Topology, n: int, gpu_nodes: Sequence[int | None]) -> CorePlan:
    large, small = _usable(topology)
    cores = large + small
    if n <= len(cores):
        chosen = _spread(large, n) if n <= len(large) else [*large, *_spread(small, n - len(large))]
        idle = [core for core in cores if core not in chosen]
        n_kept = min(len(idle), _n_kept(min(len(cores), _quota(topology)), len(gpu_nodes)))
        kept = _first_threads(topology, _keep(idle, n_kept, gpu_nodes))
        return CorePlan(_first_threads(topology, chosen), kept, _notes(topology, n, n))
    allowed = frozenset(topology.allowed_cpus)
    threads = {core.index: [cpu for cpu in core.cpus if cpu in allowed] for core in cores}
    workers, taken = set[int](), 0
    while len(workers) < n:
        # A further thread on each core before any core gets one more.
        ready = [core for core in cores if len(threads[core.index]) > taken]
        if not ready:
            return CorePlan((NOT_PINNED,) * n, (), _notes(topology, n, len(cores)))
        workers.update(threads[core.index][taken] for core in _spread(ready, n - len(workers)))
        taken += 1
    return CorePlan(tuple(cpu for core in cores for cpu in core.cpus if cpu in workers), (), _notes(topology, n, len(cores)))


def _usable(topology: Topology) -> tuple[list[Core], list[Core]]:
    """Cores that may be used, large ones and small ones; all are large where there are only small ones."""
    usable = topology.usable_cores
    large = [core for core in usable if core.kind == "performance"]
    small = [core for core in usable if core.kind == "efficient"]
    return (large, small) if large else (small, [])


def _quota(topology: Topology) -> int:
    """Cores' worth of time, whole ones, at least 1."""
    return len(topology.cores) if topology.quota_cores is None else max(1, int(topology.quota_cores))


def _n_kept(n_cores: int, n_gpus: int) -> int:
    """Never more than a quarter of the cores: what works matters more."""
    if n_cores < SPARE_FROM:
        return 0
    return min(max(n_gpus, 2 if n_cores >= MANY_CORES else 1), n_cores // 4)


def _keep(cores: Sequence[Core], n: int, gpu_nodes: Sequence[int | None]) -> list[Core]:
    """n cores to keep back: on the nodes of GPUs in turn, else on the node that has most left; of its L3 groups from the one that
    has most left, the last core."""
    left, kept = list(cores), list[Core]()
    for turn in range(n):
        node = gpu_nodes[turn % len(gpu_nodes)] if gpu_nodes else None
        near = [core for core in left if core.node == node] or left
        on_node = Counter(core.node for core in near)
        fullest = max(on_node, key=lambda one: (on_node[one], one))
        near = [core for core in near if core.node == fullest]
        sizes = Counter(core.l3 for core in near)
        group = max(sizes, key=lambda l3: (sizes[l3], l3))
        core = max((one for one in near if one.l3 == group), key=lambda one: one.index)
        left.remove(core)
        kept.append(core)
    return sorted(kept, key=lambda core: core.index)


def _spread(cores: Sequence[Core], n: int) -> list[Core]:
    """n of the cores: each next one on the node with the fewest so far, there in the L3 group with the fewest."""
    left: dict[int, dict[int, list[Core]]] = {}
    for core in cores:
        left.setdefault(core.node, {}).setdefault(core.l3, []).append(core)
    chosen, on_node, in_group = list[Core](), Counter[int](), Counter[int]()
    for _ in range(min(n, len(cores))):
        node = min((one for one in left if any(left[one].values())), key=lambda one: (on_node[one], one))
        group = min((one for one, rest in left[node].items() if rest), key=lambda one: (in_group[one], one))
        chosen.append(left[node][group].pop(0))
        on_node[node] += 1
        in_group[group] += 1
    return sorted(chosen, key=lambda core: core.index)


def _first_threads(topology: Topology, cores: Iterable[Core]) -> tuple[int, ...]:
    """The first thread of each core that this process may use."""
    allowed = frozenset(topology.allowed_cpus)
    return tuple(next(cpu for cpu in core.cpus if cpu in allowed) for core in cores)


def _notes(topology: Topology, n_workers: int, n_cores: int) -> tuple[str, ...]:
    notes = []
    if n_workers > n_cores:
        notes.append(f"{n_workers} workers share {n_cores} cores, which is slower than one worker a core on most machines")
    if topology.quota_cores is not None and n_workers > topology.quota_cores:
        notes.append(f"the control group of this program gives it the time of {topology.quota_cores:g} cores")
    return tuple(notes)
