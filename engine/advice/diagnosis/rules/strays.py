"""Workers that another program has moved off their processors."""

from __future__ import annotations

from engine.advice.diagnosis.finding import Action
from engine.advice.diagnosis.rule import Said
from engine.advice.diagnosis.window import Window
from engine.api.values import StrayWorker, Topology
from engine.hardware.cpu_list import format_cpus

LEFT_SO = (
    "by the system's list of where each thread may run, which another program or a control group has changed since; it is left "
    "so until you want it otherwise, for whoever did it may have a reason"
)


def strayed(window: Window) -> Said | None:
    """Workers run elsewhere than where they were pinned: on a core with another worker, or far from the weights they read."""
    strays = window.works[-1].strays if window.works else ()
    if not strays or not window.is_working:
        return None
    cpus = format_cpus(one.cpu for one in strays)
    now = format_cpus(sorted({cpu for one in strays for cpu in one.allowed}))
    many = len(strays) > 1
    who = f"{len(strays)} of {window.n_workers} workers were" if many else "A worker was"
    how = "let go from" if all(one.cpu in one.allowed for one in strays) else "moved off"
    return Said(
        f"{who} {how} processor{'s' if many else ''} {cpus} by another program and may run on {now}{_far(window, strays)}: each "
        f"step waits for {'them' if many else 'it'}.",
        LEFT_SO,
        Action("repin", "Pin them again" if many else "Pin it again", cpus=format_cpus(window.worker_cpus)),
    )


def _far(window: Window, strays: tuple[StrayWorker, ...]) -> str:
    """Where none of the processors is on the node whose memory it reads."""
    topology = window.facts.topology
    if topology is None:
        return ""
    left = {_node(topology, one.cpu) for one in strays}
    now = {_node(topology, cpu) for one in strays for cpu in one.allowed}
    if None in left | now or left & now:
        return ""
    return f", on memory node {' and '.join(map(str, sorted(node for node in now if node is not None)))}"


def _node(topology: Topology, cpu: int) -> int | None:
    return next((core.node for core in topology.cores if cpu in core.cpus), None)
