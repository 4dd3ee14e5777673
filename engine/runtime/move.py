"""A loaded model on its way to another placement, while it goes on answering.

A thread builds the new placement beside the one that runs: takes the room of everything first, compiles, brings weights, warms
up, and copies caches and states ahead. Between two steps the thread that steps copies what was written since and takes the new
placement; then the old one is freed. Until that moment a failure or a cancel frees what is new, and nothing has changed. Where
there is no room for both at once it is done in parts, and a failure of a later one undoes those before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import Cancelled, EngineError, OutOfDeviceMemory, OutOfMemory
from engine.placement.placement import Gpu, Placement
from engine.runtime.build import advised, build, estimator_of, owning_of
from engine.runtime.garbage import left_lying
from engine.runtime.laps import Laps
from engine.runtime.move_plan import gpus_of, parts_of
from engine.runtime.pace import Pace
from engine.runtime.placed import Placed
from engine.runtime.source import Building
from engine.runtime.step import StepBatch
from engine.runtime.stream_passage import TURNS
from engine.runtime.written import Live, Written
from kernels_pyx.executor import AbortFlag

if TYPE_CHECKING:
    from engine.runtime.cache_copy import CacheCopy
    from engine.runtime.loaded_model import LoadedModel
    from engine.runtime.node_memory import NodeMemory


@dataclass(frozen=True, slots=True)
class Progress:
    """phase: see `engine.api.events.MigrationProgress`."""

    phase: str
    done: int
    total: int


class Move:
    """Made, polled and ended by the thread that steps; what it does meanwhile is done by a thread of its own."""

    def __init__(self, model: LoadedModel, target: Placement, live: Callable[[], Live], wake: Callable[[], None]) -> None:
        """live: what of caches and states must not be lost, asked between steps. wake: called when `poll` has something to do."""
        assert model.placed is not None
        self._model = model
        self._target = target
        self._live = live
        self._wake = wake
        self._abort = AbortFlag()
        self._pace = Pace(model.usual_step_s)
        self._changed = threading.Condition()
        self._request: Callable[[], None] | None = None
        self._problem: BaseException | None = None
        self._error: BaseException | None = None
        self._abandoned = False
        self._over = False
        self._written: Written | None = None
        self.progress = Progress("room", 0, 0)
        self.moved_bytes = 0
        self.uploaded_bytes = 0
        """Of `moved_bytes`, what crossed to GPUs as weights."""
        self.pause_s = 0.0
        self.laps = Laps()
        """What the time went to."""
        self._thread = threading.Thread(target=self._run, name="placement", daemon=True)
        self._thread.start()

    def stepping(self, batch: StepBatch) -> None:
        """Before each step."""
        if self._written is not None:
            self._written.note(batch)

    def stepped(self, batch: StepBatch, seconds: float) -> None:
        """After each step."""
        if batch.phase == "decode":
            self._pace.stepped(seconds)

    def poll(self) -> bool:
        """Between two steps: does what has waited for that; whether the move is over."""
        with self._changed:
            request, self._request = self._request, None
            if request is not None:
                try:
                    request()
                except BaseException as error:
                    self._problem = error
                self._changed.notify_all()
        return self._over

    def cancel(self) -> None:
        """Asks it to end; what is not there yet is undone."""
        self._abort.set()
        with self._changed:
            self._changed.notify_all()

    def abandon(self) -> None:
        """As `cancel`, for a model that is about to be closed: parts that were moved stay where they are."""
        self._abandoned = True
        self.cancel()

    def wait(self) -> None:
        """Until it is over. Between two steps.

        Raises:
            What ended it: see `end`.
        """
        while not self.poll():
            with self._changed:
                self._changed.wait_for(lambda: self._request is not None or self._over, 0.05)
        self.end()

    def end(self) -> None:
        """After it is over.

        Raises:
            Cancelled, OutOfMemory, and whatever `build` raises: the model lies as it did.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        TURNS.begin()
        try:
            with left_lying():
                if self._target == self._model.placement and self._model.source.nodes is not None:
                    self._look_after(self._model.source.nodes)
                else:
                    self._go(self._target)
        except OutOfDeviceMemory as error:
            self._error = advised(error, self._model.source, self._target)
        except BaseException as error:
            self._error = error
        finally:
            TURNS.end()
            self._after()
            with self._changed:
                self._over = True
                self._changed.notify_all()
            self._wake()

    def _look_after(self, nodes: NodeMemory) -> None:
        """The same placement again: pages that the system has put elsewhere are sent where they are meant to lie."""
        self._tell("room", 0, 0)

        def told(done: int, total: int) -> None:
            self._tell("weights", done, total)
            if self._abort.is_set:
                raise Cancelled("the move was stopped")

        self.moved_bytes = nodes.bring_home(self._model.places, told, self._pace.pause)

    def _after(self) -> None:
        """Pages of our own follow what the CPU reads now."""
        model = self._model
        try:
            assert model.placed is not None
            with self.laps.lap("pages"):
                model.renew_owning(owning_of(model.source, model.placed, model.owning))
        except BaseException as error:
            self._error = self._error or error

    def _go(self, target: Placement) -> None:
        """At once, or in parts; back to where it began where one fails."""
        assert self._model.placement is not None
        start = self._model.placement
        try:
            self._hop(target)
            return
        except OutOfMemory:
            parts = parts_of(start, target) if self._would_fit(target) else ()
            if not parts:
                raise
        problem: EngineError | None = None
        for part in parts:
            try:
                self._go(part)
            except EngineError as error:
                problem = error
                break
        if problem is not None:
            self._back(start, problem)

    def _back(self, start: Placement, problem: EngineError) -> None:
        """Undoes the parts that were done, also after a Cancel."""
        problem.with_traceback(None)  # whose frames hold what was taken for the part that failed
        if self._model.placement != start and not self._abandoned:
            self._abort.clear()
            try:
                self._go(start)
            except EngineError as error:
                told = f"{problem}; what was moved could not be moved back ({error}), the model goes on as it lies now"
                raise EngineError(told) from error
        raise problem

    def _would_fit(self, target: Placement) -> bool:
        """Whether the placement has room once the old one is gone, as far as estimates go."""
        found = estimator_of(self._model.source).estimate(target)
        return not any(found.of(device).over for device in target.devices if isinstance(device, Gpu))

    def _hop(self, target: Placement) -> None:
        """From the placement that runs to another one. Fails before the switch, without a trace, or not at all."""
        model, source = self._model, self._model.source
        now = model.placed
        assert now is not None
        building = Building(self._tell, self._abort, model.abort, pause=self._pace.pause, laps=self.laps)
        with ExitStack() as late:
            late.enter_context(_pinned_later(now.placement, target))
            try:
                self._tell("room", 0, 0)
                then = build(source, target, building, now)
                with self.laps.lap("caches ahead"):
                    copy = self._copy(now, then)
                if self._abort.is_set:
                    raise Cancelled("the move was stopped")
                self._tell("switch", 0, 0)
                with self.laps.lap("switch, with the step before it"):
                    self._between_steps(lambda: self._switch(now, then, copy))
            except BaseException:
                self._written = None
                building.give_back()
                raise
            self.moved_bytes += then.moved_bytes + (0 if copy is None else copy.nbytes)
            self.uploaded_bytes += then.uploaded_bytes
            with self.laps.lap("release"):
                now.close()
                late.close()
        source.weights.keep_turned(then.turned)

    def _copy(self, now: Placed, then: Placed) -> CacheCopy | None:
        """Copies caches and states that move, ahead of the switch; None: none do."""
        if not gpus_of((now.placement, then.placement)):
            return None
        from engine.runtime.cache_copy import CacheCopy  # with torch, which a CPU alone does without

        copy = CacheCopy(self._model.spec, now, then)
        if not copy.moves:
            return None
        copy.take_room()
        found: list[Live] = []
        self._between_steps(lambda: found.append(self._begin_writing()))
        copy.bring(found[0], self._pause)
        # Once more what was written meanwhile: little is left to the switch then, and what copies a few blocks has run before.
        self._between_steps(lambda: found.append(self._begin_writing_again()))
        copy.bring(found[1], self._pause)
        return copy

    def _pause(self, seconds: float) -> None:
        if self._abort.is_set:
            raise Cancelled("the move was stopped")
        self._pace.pause(seconds)

    def _begin_writing(self) -> Live:
        self._written = Written(len(self._model.cache_groups), self._model.state_slots[0])
        return self._live()

    def _begin_writing_again(self) -> Live:
        assert self._written is not None
        before = self._written.found()
        return before.both(self._begin_writing())

    def _switch(self, now: Placed, then: Placed, copy: CacheCopy | None) -> None:
        """Between two steps: the rest of caches and states follows, and the next step runs in the new placement."""
        started = time.perf_counter()
        if copy is not None and self._written is not None:
            copy.bring(self._written.found().both(self._live()))
        self._written = None
        then.states.go_on(now.states)
        then.executor.profile = now.executor.profile
        if now.executor.pools is not None and then.executor.pools is not None:
            then.executor.pools.use(now.executor.pools.mode)  # filled as the placement says, they learn anew
        then.executor.settle()
        if now.programs is not None and then.programs is not None:
            then.programs.take_team(now.programs)
        self._model.take(then)
        self.pause_s += time.perf_counter() - started

    def _between_steps(self, work: Callable[[], None]) -> None:
        """Has the thread that steps do something, and waits for it.

        Raises:
            Cancelled: before it was done. What the work raised.
        """
        with self._changed:
            self._problem = None
            self._request = work
            self._wake()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._request is None or self._abort.is_set)
            if self._request is not None:
                self._request = None
                raise Cancelled("the move was stopped")
            if self._problem is not None:
                raise self._problem

    def _tell(self, phase: str, done: int, total: int) -> None:
        self.progress = Progress(phase, done, total)


def _pinned_later(now: Placement, then: Placement) -> AbstractContextManager[None]:
    """Gives back what a move lets go of that GPUs read of the machine's memory, all of it at its end."""
    if not gpus_of((now, then)):
        return nullcontext()
    from engine.runtime.pinned import given_back_at_once  # with torch, which a CPU alone does without

    return given_back_at_once()
