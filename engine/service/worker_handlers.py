"""The commands about who works, run on the engine thread between two steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.api.commands import Command, PinWorkers, TuneWorkers
from engine.api.events import Finished, WorkersPinned, WorkersTuned
from engine.errors import InvalidRequest
from engine.estimate.tuned import Tuned, forget_tuned, save_tuned, tuned_key
from engine.hardware.topology_read import forget_topology, topology
from engine.hardware.user_data import user_data_dir
from engine.hardware.worker_plan import plan_cores
from engine.placement.placement import Gpu, WorkerPlan, plan_workers
from engine.placement.threads import parse_threads
from engine.runtime.repin import repin
from engine.service.loaded import Loaded, lying
from engine.service.state import State
from engine.service.tuning import Tuning


def handle_pin_workers(state: State, command: PinWorkers) -> None:
    """Puts other workers to work."""
    loaded = _loaded(state)
    if state.tuning is not None:
        raise InvalidRequest("numbers of workers are being tried; wait for the end of that, or cancel it")
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


def handle_tune_workers(state: State, command: TuneWorkers) -> None:
    """Begins to try numbers of workers, which ends the request later; or forgets what was found before."""
    loaded = _loaded(state)
    if command.forget:
        problem = _kept(loaded, None)
        state.emit(WorkersTuned(command.request_id, (), (), 0, 0, 0.0, False, problem))
        state.emit(Finished(command.request_id, "done"))
        return
    if state.tuning is not None:
        raise InvalidRequest("numbers of workers are being tried already; wait for the end of that, or cancel it")
    loaded.model.check_identity()
    state.tuning = Tuning(command.request_id, loaded, topology(), state.emit, lambda found: _kept(loaded, found))


def _kept(loaded: Loaded, found: Tuned | None) -> str:
    """Keeps what was found, or None: forgets; why that cannot be, one sentence, "": it is done."""
    source, placement = loaded.model.source, loaded.model.placement
    gpus = placement is not None and any(isinstance(one, Gpu) for one in placement.devices)
    key = tuned_key(source.spec, source.file.file_bytes, gpus=gpus)
    try:
        if found is None:
            forget_tuned(user_data_dir(), source.machine, key)
        else:
            save_tuned(found, user_data_dir(), source.machine, key)
    except OSError as error:
        return f"{error.filename or user_data_dir()}: {error.strerror}; check its permissions and the free space"
    return ""


def _loaded(state: State) -> Loaded:
    if state.loaded is None:
        raise InvalidRequest("no model is loaded; load one first")
    return state.loaded


WORKER_HANDLERS: dict[type[Command], Callable[[State, Any], None]] = {
    PinWorkers: handle_pin_workers,
    TuneWorkers: handle_tune_workers,
}
