"""The processor: too many workers, others on its cores, memory that gives no more, cores that could do more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median

from engine.advice.diagnosis.finding import Action
from engine.advice.diagnosis.remedies import cores_without, n_workers_text, one_a_core, pin_to, quiet_cores
from engine.advice.diagnosis.rule import Said
from engine.advice.diagnosis.window import Window, percent_text, rate_text, spoken
from engine.api.values import HardwareSnapshot

TAKEN_PER_S = 50.0
"""Times a second that a worker is taken off its core; a quiet system does it less than ten times."""
FOREIGN_SHARE = 0.10
WAITING_PERCENT = 3.0
"""Of time for which workers were ready and had no core: below that others on the same cores cost nothing."""
PRESSURE_PERCENT = 20.0
ON_ONE_NODE = 0.8
"""Of what others take."""
MUCH = 0.5
"""Of a step: what takes less is not what limits."""
NEAR_CEILING, FAR_BELOW = 0.80, 0.55
IDLE_PERCENT, FULL_PERCENT = 70.0, 90.0
COMPUTE_BELOW = 0.5
CLOCKS_APART = 1.3
NODE_WAIT = 0.15
STEAL_PERCENT = 10.0


def crowded(window: Window) -> Said | None:
    """More workers than cores, or two on one: each step waits for the last of them."""
    topology = window.facts.topology
    if topology is None or not window.n_workers or not window.is_working:
        return None
    n_cores = len(topology.usable_cores)
    if topology.quota_cores is not None:
        n_cores = min(n_cores, max(1, int(topology.quota_cores)))
    core_of = {cpu: core.index for core in topology.cores for cpu in core.cpus}
    pinned = [core_of[cpu] for cpu in window.worker_cpus if cpu in core_of] if window.n_workers == len(window.worker_cpus) else []
    shared = len(pinned) - len(set(pinned))
    if window.n_workers <= n_cores and not shared:
        return None
    tuned = window.facts.tuned
    if tuned and not _is_taken(window):
        return None  # it was measured to be faster here
    n_good = n_cores if window.n_workers > n_cores else len(set(pinned))
    taken = _taken(window)
    good = one_a_core(window, n_good)
    return Said(
        f"{window.n_workers} workers share {n_good} cores: {n_good} {'is' if n_good == 1 else 'are'} faster on most machines.",
        (f"a worker is taken off its core {taken:.0f} times a second; " if taken else "")
        + "a second worker on a core adds no memory bandwidth, and each step waits for the last one",
        pin_to(window, good, f"Choose {n_workers_text(n_good)}") if good else Action("tune", "Try numbers of workers"),
    )


def _taken(window: Window) -> float | None:
    """Times a second that the workers' threads were taken off, the mean."""

    def of(snapshot: HardwareSnapshot) -> float | None:
        threads = snapshot.process.threads
        rates = [one.involuntary_per_s for one in threads if one.involuntary_per_s is not None]
        return sum(rates) / len(rates) if rates else None

    return window.mean(of)


def _is_taken(window: Window) -> bool:
    taken = _taken(window)
    return taken is not None and taken > TAKEN_PER_S


def contended(window: Window) -> Said | None:
    """Other programs work on the cores that the model works on."""
    n_cpus = len(window.worker_cpus)
    if not n_cpus or not window.is_working or (not window.nodes and not window.is_prefilling):
        return None
    steal = window.mean(lambda one: one.cpu.steal_percent)
    if steal is not None and steal > STEAL_PERCENT:
        return Said(
            f"The host of this virtual machine takes {steal:.0f} % of its processors' time for others.",
            "stolen time as the kernel counts it: nothing in this machine can change it",
            about="host",
        )
    taken = [foreign_cores for one in window.readings if (foreign_cores := _others(window, one.snapshot)) is not None]
    # The median: a burst of a second or two would lift the mean of the whole window.
    if 2 * len(taken) <= len(window.readings) or (others := median(taken)) <= FOREIGN_SHARE * n_cpus:
        return None
    waiting = window.mean(_waiting)
    felt = window.readings[-1].snapshot.pressure.cpu_some_percent
    if waiting is not None and waiting < WAITING_PERCENT and (felt is None or felt < PRESSURE_PERCENT):
        return None
    foreign = next((one.snapshot.process.foreign for one in reversed(window.readings) if one.snapshot.process.foreign), ())
    who = foreign[0].name if foreign and foreign[0].cores >= 0.5 * others else ""
    cores = f"{others:.1f}".removesuffix(".0")
    kept_waiting = "" if waiting is None else f"; the workers waited {waiting:.0f} % of the time for a core"
    node = _node_taken(window)
    where = "" if node is None else f", all on memory node {node}: the other nodes wait for it"
    return Said(
        f"{who or 'Other programs'} {'uses' if who else 'use'} {cores} of the {n_cpus} cores the model works on{where}.",
        f"the processors' use less this program's own{kept_waiting}",
        _elsewhere(window, others),
    )


def _elsewhere(window: Window, others: float) -> Action:
    """As many workers on cores that are left alone; where all are shared alike, so many fewer that others have cores too."""
    quiet = quiet_cores(window)
    if set(quiet) != set(window.worker_cpus):
        return pin_to(window, quiet, "Choose quieter cores")
    n = max(1, window.n_workers - math.ceil(others))
    return pin_to(window, one_a_core(window, n), f"Choose {n_workers_text(n)}")


def _others(window: Window, snapshot: HardwareSnapshot) -> float | None:
    """Cores' worth of time that others took of those that we work on. All of our own is taken off, so it is never too much."""
    use = window.use(snapshot)
    own = snapshot.process.cores
    return None if use is None or own is None else max(0.0, use / 100 * len(window.worker_cpus) - own)


def _node_taken(window: Window) -> int | None:
    """The node on which others take most of what they take; None where it is not one, or there is one only."""
    topology = window.facts.topology
    if topology is None or len(topology.usable_nodes) < 2:
        return None
    node_of = {cpu: core.node for core in topology.cores for cpu in core.cpus}
    by_node: dict[int, list[float]] = {}
    for one in window.readings:
        for node, cores in _others_by_node(window, one.snapshot, node_of).items():
            by_node.setdefault(node, []).append(cores)
    taken = {node: median(values) for node, values in by_node.items()}
    most = max(taken, key=lambda node: taken[node], default=None)
    return most if most is not None and len(taken) > 1 and taken[most] >= ON_ONE_NODE * sum(taken.values()) else None


def _others_by_node(window: Window, snapshot: HardwareSnapshot, node_of: Mapping[int, int]) -> dict[int, float]:
    """The same by node: without the time of our own busy threads, each where it ran last."""
    wanted = frozenset(window.worker_cpus)
    found: dict[int, float] = {}
    for core in snapshot.cores:
        for cpu, percent in zip(core.cpus, core.use_percent, strict=False):
            if cpu in wanted and cpu in node_of:
                found[node_of[cpu]] = found.get(node_of[cpu], 0.0) + percent / 100
    for thread in snapshot.process.threads:
        if node_of.get(thread.cpu) in found:
            found[node_of[thread.cpu]] -= thread.cpu_percent / 100
    return {node: max(0.0, cores) for node, cores in found.items()}


def _waiting(snapshot: HardwareSnapshot) -> float | None:
    threads = snapshot.process.threads
    return sum(one.waiting_percent for one in threads) / len(threads) if threads else None


def bandwidth(window: Window) -> Said | None:
    """The CPU's part of decoding is as fast as memory allows."""
    found = _of_ceiling(window)
    if found is None or found[1] < NEAR_CEILING:
        return None
    device, reached, ceiling, share = found
    reached = min(1.0, reached)
    what = "CPU experts are" if _has_experts(window) else "The CPU's layers are"
    return Said(
        f"{what} limited by RAM speed: {percent_text(reached)} of the {rate_text(ceiling)} this machine can do.",
        f"{percent_text(share)} of a token's time is the CPU reading weights on {spoken(device)}; the ceiling was measured here",
        Action("relieve", "Move layers to a GPU", device),
        device,
    )


def inefficient(window: Window) -> Said | None:
    """The CPU has most of the work and neither memory nor cores are used up."""
    found = _of_ceiling(window)
    if found is None or found[1] >= FAR_BELOW:
        return None
    device, reached, ceiling, share = found
    busy = window.mean(window.use)
    if busy is None or busy >= IDLE_PERCENT:
        return None
    return Said(
        f"The CPU uses {percent_text(reached)} of RAM speed and {busy:.0f} % of its cores' time. Try other numbers of workers?",
        f"{percent_text(share)} of a token's time is the CPU's, at {percent_text(reached)} of the {rate_text(ceiling)} measured",
        Action("tune", "Try numbers of workers"),
        device,
    )


def _of_ceiling(window: Window) -> tuple[str, float, float, float] | None:
    """(node, share of its ceiling that is reached, ceiling, share of the step) of the busiest node that has most of a step."""
    for device in window.nodes:
        share, achieved, ceiling = window.share(device), window.achieved(device), window.facts.ceilings.get(device)
        if share is not None and share > MUCH and achieved and ceiling and share == window.cpu_share:
            return device, achieved / ceiling, ceiling, share
    return None


def _has_experts(window: Window) -> bool:
    info = window.facts.info
    placement = None if info is None else info.placement
    return placement is not None and any(
        unit.kind == "experts" for unit, where in placement.units if str(where).startswith("numa")
    )


def computing(window: Window) -> Said | None:
    """A prompt is read as fast as the cores multiply."""
    if not window.is_prefilling or not window.facts.chunk:
        return None
    works = [one for one in window.works if one.n_prefilled or one.prompt_tokens]
    cpu = window.works_mean(
        lambda one: max((work.working_percent for work in one.devices if work.device.startswith("numa")), default=None), works
    )
    busy, rate = window.mean(window.use), window.works_mean(lambda one: one.prefill_tok_s, works)
    info, ceiling = window.facts.info, max(window.facts.ceilings.values(), default=0.0)
    if cpu is None or cpu <= 100 * MUCH or busy is None or busy < FULL_PERCENT or not rate or info is None or not ceiling:
        return None
    held = sum(one.nbytes for one in info.holdings if one.device.startswith("numa") and one.owner == "weights")
    read = held * rate / window.facts.chunk
    if read >= COMPUTE_BELOW * ceiling:
        return None
    return Said(
        f"Reading your prompt is limited by CPU arithmetic: {rate:,.0f} tokens/s.",
        f"the cores are {busy:.0f} % busy and memory gives {percent_text(read / ceiling)} of what it can",
        Action("rebalance", "Look at a faster placement", target="prompts"),
    )


def uneven(window: Window) -> Said | None:
    """Some of the cores that work are much slower, or one node waits for another: each step ends with the last."""
    if not window.decoding:
        return None
    by_group: dict[int, list[float]] = {}
    topology = window.facts.topology
    groups = {core.index: core.l3 for core in topology.cores} if topology is not None else {}
    for one in window.readings:
        for core in window.worker_cores(one.snapshot):
            if core.frequency_mhz and core.index in groups:
                by_group.setdefault(groups[core.index], []).append(core.frequency_mhz)
    clocks = {group: sum(values) / len(values) for group, values in by_group.items()}
    if len(clocks) > 1:
        slow, fast = min(clocks, key=lambda one: clocks[one]), max(clocks, key=lambda one: clocks[one])
        if clocks[fast] > CLOCKS_APART * clocks[slow]:
            return Said(
                f"Cores of chiplet {slow} finish late: {clocks[slow] / 1000:.1f} GHz, others {clocks[fast] / 1000:.1f} GHz.",
                "every step waits for its slowest worker; without these cores it may be faster",
                pin_to(window, cores_without(window, slow), "Choose the other cores"),
            )
    packed = _packed(window)
    if packed is not None:
        return packed
    waits = {node: share for node in window.nodes if (share := window.waits(node)) is not None}
    if len(waits) > 1 and max(waits.values()) - min(waits.values()) > NODE_WAIT:
        idle, late = max(waits, key=lambda one: waits[one]), min(waits, key=lambda one: waits[one])
        if window.is_disturbed(late):
            return None
        return Said(
            f"The cores of {spoken(idle)} wait for {percent_text(waits[idle])} of each step.",
            "the nodes have unequal parts of the work",
            Action("rebalance", "Look at a faster placement", idle),
        )
    return None


def _packed(window: Window) -> Said | None:
    """The workers of the busiest node sit on fewer of its L3 groups than they could, and memory gives less than it can: each
    group has a link of its own to it."""
    found, topology = _of_ceiling(window), window.facts.topology
    if found is None or topology is None or found[1] >= NEAR_CEILING or window.n_workers != len(window.worker_cpus):
        return None
    device, reached, ceiling, _ = found
    cores = [core for core in topology.usable_cores if len(topology.usable_nodes) < 2 or f"numa{core.node}" == device]
    mine = [core for core in cores if not set(core.cpus).isdisjoint(window.worker_cpus)]
    used, groups = {core.l3 for core in mine}, {core.l3 for core in cores}
    if not mine or len(used) >= min(len(mine), len(groups)):
        return None
    action = pin_to(window, one_a_core(window, window.n_workers), "Spread over chiplets")
    return Said(
        f"The {len(mine)} workers sit on {len(used)} of {len(groups)} chiplets; the links of the others to memory rest.",
        f"memory gives {percent_text(reached)} of the {rate_text(ceiling)} that was measured with all cores",
        action,
        "chiplets",
    )
