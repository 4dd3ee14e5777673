"""What a button fills in where the cure is no placement: which cores, how long a context. Pure, of a window."""

from __future__ import annotations

from engine.advice.diagnosis.finding import Action
from engine.advice.diagnosis.window import Window
from engine.api.values import HardwareSnapshot, Topology
from engine.api.workers import threads_text
from engine.errors import InvalidRequest
from engine.hardware.worker_plan import NOT_PINNED, plan_cores

FREE_PERCENT = 25.0
"""Of a core: who has less to do there than this leaves it to us."""
SHORTEST = 2048
STEP = 1024
SPARE = 1.25
"""Of the tokens in use: a context that is nearly full at once helps nobody."""


def n_workers_text(n: int) -> str:
    """`1 worker`, `8 workers`."""
    return "1 worker" if n == 1 else f"{n} workers"


def planned(topology: Topology, n: int) -> tuple[int, ...]:
    """The processors on which n workers should run; () where so many cannot be pinned."""
    try:
        workers = plan_cores(topology, n).workers
    except InvalidRequest:
        return ()
    return () if NOT_PINNED in workers else workers


def pin_to(window: Window, cpus: tuple[int, ...], text: str, device: str = "") -> Action:
    """A button that opens the choice of workers with these filled in; none where these work already."""
    if not cpus or (set(cpus) == set(window.worker_cpus) and window.n_workers == len(cpus)):
        return Action()
    return Action("pin", text, device, cpus=threads_text(cpus))


def one_a_core(window: Window, n: int) -> tuple[int, ...]:
    """n workers with a core each."""
    topology = window.facts.topology
    return () if topology is None else planned(topology, n)


def quiet_cores(window: Window) -> tuple[int, ...]:
    """As many processors as work now, one a core, of cores that others leave alone; fewer where there are not so many."""
    topology = window.facts.topology
    if topology is None:
        return ()
    taken = {core.index: _taken(window, core.cpus) for core in topology.usable_cores}
    allowed = frozenset(topology.allowed_cpus)
    quiet = [core for core in topology.usable_cores if (percent := taken[core.index]) is not None and percent < FREE_PERCENT]
    mine = frozenset(window.worker_cpus)
    # Those of now first: weights lie in their caches, and on their node.
    quiet.sort(key=lambda core: (mine.isdisjoint(core.cpus), core.kind == "efficient", core.index))
    found = [next(cpu for cpu in core.cpus if cpu in allowed) for core in quiet[: max(1, window.n_workers)]]
    return tuple(sorted(found))


def _taken(window: Window, cpus: tuple[int, ...]) -> float | None:
    """Percent of a core's time that others took, the mean of the window; None where that is not known."""

    def of(snapshot: HardwareSnapshot) -> float | None:
        core = next((one for one in snapshot.cores if not set(cpus).isdisjoint(one.cpus)), None)
        if core is None:
            return None
        own = sum(one.cpu_percent for one in snapshot.process.threads if one.cpu in cpus)
        return max(0.0, sum(core.use_percent) - own)

    return window.mean(of)


def cores_without(window: Window, group: int) -> tuple[int, ...]:
    """The processors that work now, but for those of an L3 group."""
    topology = window.facts.topology
    if topology is None:
        return ()
    slow = {cpu for core in topology.cores if core.l3 == group for cpu in core.cpus}
    return tuple(cpu for cpu in window.worker_cpus if cpu not in slow)


def longer_context(window: Window) -> int:
    """The next longer context that the model was made for; 0: this is the longest."""
    info = window.facts.info
    if info is None or info.context_length <= info.n_ctx:
        return 0
    return min(2 * info.n_ctx, info.context_length)


def shorter_context(window: Window, device: str, nbytes: int) -> Action:
    """A button that plans a context whose cache takes nbytes less of a card; another model where that would leave too little."""
    info = window.facts.info
    other = Action("model", "Choose a smaller model")
    if info is None or info.n_ctx <= SHORTEST:
        return other
    held = sum(one.nbytes for one in info.holdings if one.device == device and one.owner == "kv")
    used = window.works[-1].kv_used_tokens if window.works else 0
    if not held:
        return other
    wanted = int(info.n_ctx * (1 - nbytes / held)) // STEP * STEP
    if wanted < max(SHORTEST, SPARE * used):
        return other
    return Action("context", f"Plan a context of {wanted:,} tokens", device, n_ctx=wanted)
