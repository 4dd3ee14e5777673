"""Who works on the CPU's part of a placement, and whether the system lets them run where they are wanted."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from engine.errors import InvalidRequest
from engine.hardware import sysfs
from engine.hardware.cpu_list import format_cpus, parse_cpus
from engine.placement.options import LoadOptions
from engine.placement.placement import WorkerPlan
from engine.program.lane_ops import LaneEmbed, LaneOp, LaneRows
from engine.program.lane_transfer import LaneRecv, LaneSend
from kernels_pyx.pool import Pool

FETCHERS = 4
"""Workers where there are only rows of the embedding to fetch, which every token waits for."""
LEFT_TO_DRIVERS = 2


class Card(Protocol):
    """A GPU that works beside them."""

    @property
    def emulated(self) -> bool:
        """Whether the CPU plays it."""


def workers_beside(workers: WorkerPlan, ops: Iterable[LaneOp], options: LoadOptions, devices: Sequence[Card]) -> WorkerPlan:
    """Who works beside GPUs: a few where there is nothing but rows of the embedding to fetch, which every token waits for.

    Unless a number was asked for, two cores are left to the driver of real GPUs and to the thread that waits for a device. With
    all of them spinning, an exchange takes twenty times as long.
    """
    if not devices:
        return workers
    if all(isinstance(op, LaneEmbed | LaneRows | LaneSend | LaneRecv) for op in ops):
        return WorkerPlan(workers.cores[:FETCHERS])
    if options.n_threads or all(device.emulated for device in devices):
        return workers
    too_many = max(0, LEFT_TO_DRIVERS - len(workers.kept))
    return WorkerPlan(workers.cores[: max(1, len(workers.cores) - too_many)], workers.kept)


def refusal(pool: Pool) -> str:
    """Why workers do not run on their cores alone, one sentence without its end; "": they do."""
    refused = pool.refused
    if not refused:
        return ""
    cpus, error = format_cpus(core for core, _ in refused), refused[0][1]
    if error == errno.EPERM:
        return f"the system does not let this program choose its processors (asked for {cpus}), as some containers do"
    return f"the system has no processor {cpus} for this program: it was switched off, or its control group has changed"


def strays(pool: Pool, root: Path = Path("/")) -> tuple[int, ...]:
    """Cores whose worker may also run elsewhere, by what the system says of its threads; () where it says nothing."""
    found = []
    for core, thread in zip(pool.cores[1:], pool.threads, strict=True):
        allowed = allowed_cpus(thread, root) if thread and core >= 0 else ()
        if allowed and allowed != (core,):
            found.append(core)
    return tuple(found)


def allowed_cpus(thread: int, root: Path = Path("/")) -> tuple[int, ...]:
    """The processors that a thread of this process may run on; () where that is not told."""
    listed = sysfs.fields(root / f"proc/self/task/{thread}/status").get("Cpus_allowed_list", "")
    return parse_cpus(listed) or ()


def check_pins(pool: Pool) -> None:
    """Raises InvalidRequest with one sentence where workers do not run on their cores alone."""
    why = refusal(pool)
    astray = () if why else strays(pool)
    if astray:
        why = f"the system let workers of {format_cpus(astray)} run elsewhere too"
    if why:
        raise InvalidRequest(f"{why}; the workers stay where they were")
