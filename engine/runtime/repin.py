"""Other workers for a loaded model, between two steps: nothing is loaded again, and what steps compute does not change.

The programs are made anew for the new team beside those in use, which takes milliseconds: a lane's descriptors stay, only shares
and scratch depend on who works. Until the new team stands on its cores, which the system is asked, nothing has changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.errors import InvalidRequest, OutOfMemory
from engine.placement.options import LoadOptions
from engine.placement.placement import Gpu, Numa, WorkerPlan
from engine.runtime.loaded_model import LoadedModel
from engine.runtime.workers import check_pins, workers_beside
from kernels_pyx.pool import Pool

STARTING_S = 0.05
"""Workers have begun long before, unless something is wrong with the machine."""


@dataclass(frozen=True, slots=True)
class Repinned:
    """workers: who works now, the one that asks first; pause_s: how long no step could be made."""

    workers: WorkerPlan
    pause_s: float


def repin(model: LoadedModel, workers: WorkerPlan, *, chosen: bool, check: Callable[[Pool], None] = check_pins) -> Repinned:
    """Puts these workers to work. For the thread that steps. chosen: somebody asked for exactly these; beside GPUs, some of those
    that are good for the machine are left to drivers. check: raises where a team is not where it should be.

    Raises:
        InvalidRequest: the model has no placement or moves to another one; the system refuses cores. OutOfMemory. The workers
        are then those from before.
    """
    started = time.perf_counter()
    placed = model.placed
    if placed is None:
        raise InvalidRequest("the reference model has no workers; load the model without it")
    if model.moving:
        raise InvalidRequest("another placement is being applied; wait for its end, or cancel it")
    placement = replace(placed.placement, workers=workers)
    programs = placed.programs
    if programs is not None:
        before = programs.workspace_bytes
        emulated = {one.index: one.emulated for one in model.source.machine.gpus}
        cards = [_Card(emulated.get(one.index, True)) for one in placement.devices if isinstance(one, Gpu)]
        options = LoadOptions(n_threads=workers.n_workers if chosen else 0)
        try:
            team = programs.with_team(workers_beside(workers, programs.ops, options, cards))
        except (OSError, MemoryError) as error:
            raise OutOfMemory(f"no room for {workers.n_workers} workers ({error}); the workers stay as they were") from error
        except ValueError as error:
            raise InvalidRequest(f"the model cannot run on these workers: {error}; the workers stay as they were") from error
        try:
            _await(team.pool)
            check(team.pool)
        except BaseException:
            team.pool.close()
            raise
        programs.use(team)
        held = tuple(
            replace(one, nbytes=one.nbytes + programs.workspace_bytes - before)
            if one.owner == "workspace" and isinstance(one.device, Numa)
            else one
            for one in placed.holdings
        )
        placed = replace(placed, holdings=held)
    model.take(replace(placed, placement=placement))
    model.workers_chosen = chosen
    return Repinned(workers, time.perf_counter() - started)


@dataclass(frozen=True, slots=True)
class _Card:
    emulated: bool


def _await(pool: Pool) -> None:
    """Until all workers have begun and the system can be asked about them."""
    until = time.perf_counter() + STARTING_S
    while 0 in pool.threads and time.perf_counter() < until:
        time.sleep(1e-4)
