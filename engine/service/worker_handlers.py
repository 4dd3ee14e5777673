"""The commands about who works, run on the engine thread between two steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.api.commands import Command, PinWorkers
from engine.api.events import Finished, WorkersPinned
from engine.errors import InvalidRequest
from engine.hardware.topology_read import forget_topology, topology
from engine.hardware.worker_plan import plan_cores
from engine.placement.placement import WorkerPlan, plan_workers
from engine.placement.threads import parse_threads
from engine.runtime.repin import repin
from engine.service.loaded import lying
from engine.service.state import State


def handle_pin_workers(state: State, command: PinWorkers) -> None:
    """Puts other workers to work."""
    loaded = state.loaded
    if loaded is None:
        raise InvalidRequest("no model is loaded; load one first")
    n_threads, cores = parse_threads(command.cpus)
    workers, notes = wanted(n_threads, cores)
    done = repin(loaded.model, workers, chosen=bool(n_threads))
    loaded.info = lying(loaded.info, loaded.model)
    state.emit(WorkersPinned(command.request_id, loaded.info, done.pause_s, notes))
    state.emit(Finished(command.request_id, "done"))


def wanted(n_threads: int, cores: tuple[int, ...]) -> tuple[WorkerPlan, tuple[str, ...]]:
    """Who shall work, and what is unusual about it, one sentence each.

    Raises:
        InvalidRequest: see `plan_workers`.
    """
    try:
        workers = plan_workers(n_threads, cores)
    except InvalidRequest:
        forget_topology()  # a processor may have been switched on since it was read
        workers = plan_workers(n_threads, cores)
    return workers, plan_cores(topology(), n_threads, cores).notes


WORKER_HANDLERS: dict[type[Command], Callable[[State, Any], None]] = {PinWorkers: handle_pin_workers}
