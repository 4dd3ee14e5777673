"""Who works on a machine, for the application: presets, lists as people write them, why some cores do not work. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from engine.api.values import Topology
from engine.errors import InvalidRequest
from engine.hardware.cpu_list import format_cpus
from engine.hardware.worker_plan import NOT_PINNED, plan_cores
from engine.placement.threads import parse_threads

__all__ = [
    "every_core",
    "every_thread",
    "kept_cpus",
    "parse_threads",
    "planned_cpus",
    "problem_of",
    "read_threads",
    "threads_text",
]


def threads_text(cpus: Iterable[int]) -> str:
    """The list as `PinWorkers` takes it: `0-7,16-23`; of one processor `3-3`, since `3` is a number of workers. "" for none."""
    chosen = sorted(set(cpus))
    return f"{chosen[0]}-{chosen[0]}" if len(chosen) == 1 else format_cpus(chosen)


def read_threads(text: str, topology: Topology) -> tuple[int, ...]:
    """The processors that a list, a number, or "" (as is good for the machine) means; () where so many cannot be pinned.

    Raises:
        InvalidRequest: it means none that can be used here; one sentence.
    """
    n, cpus = parse_threads(text)
    workers = plan_cores(topology, n, cpus).workers
    return () if NOT_PINNED in workers else workers


def problem_of(text: str) -> str:
    """Why a text is no number or list, one sentence; "": it is one, here or on another machine."""
    try:
        parse_threads(text)
    except InvalidRequest as error:
        return str(error)
    return ""


def kept_cpus(topology: Topology) -> tuple[int, ...]:
    """Processors on which nobody works by itself: they are kept back for launching GPU work, the tokenizer and the window."""
    return plan_cores(topology).kept


def planned_cpus(topology: Topology) -> tuple[int, ...]:
    """The worker plan."""
    return plan_cores(topology).workers


def every_core(topology: Topology, *, node: int | None = None, l3: int | None = None) -> tuple[int, ...]:
    """The first thread of each core that may be used, of a node or an L3 group (its index) alone where one is given."""
    allowed = frozenset(topology.allowed_cpus)
    return tuple(
        next(cpu for cpu in core.cpus if cpu in allowed)
        for core in topology.usable_cores
        if (node is None or core.node == node) and (l3 is None or core.l3 == l3)
    )


def every_thread(topology: Topology) -> tuple[int, ...]:
    """All processors that may be used."""
    return topology.allowed_cpus
