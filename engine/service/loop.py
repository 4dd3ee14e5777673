"""The engine thread's loop: commands first, then one step of the answers under way. The one place that turns bugs into Failed."""

from __future__ import annotations

import logging
from collections.abc import Callable

from engine.api.commands import Command
from engine.api.events import Event, Failed
from engine.errors import Cancelled, EngineError
from engine.service.expert_handlers import tell_experts
from engine.service.handlers import handle
from engine.service.mailbox import Mailbox
from engine.service.state import State
from engine.service.tuning import Tuning
from kernels_pyx.executor import AbortFlag

log = logging.getLogger("engine")

BUG = "the engine met a fault of its own; the log has the details"


class Loop:
    """Runs until the mailbox is closed."""

    def __init__(self, mailbox: Mailbox, emit: Callable[[Event], None]) -> None:
        self._mailbox = mailbox
        self._emit = emit
        self._state = State(emit=emit, mailbox=mailbox, abort=AbortFlag())
        mailbox.stops(self._state.abort)

    def run(self) -> None:
        """Takes and steps; returns when the mailbox is closed, with everything ended and freed."""
        state = self._state
        while not self._mailbox.closed:
            command = self._mailbox.take(state.patience_s())
            self._follow_move()
            if command is not None:
                self._carry_out(command)
                continue
            self._step()
            tell_experts(state)
            state.look()
        state.end_feed()
        state.drop_model()

    def _follow_move(self) -> None:
        migration = self._state.migration
        try:
            self._state.follow_move()
        except Exception as error:
            log.exception("bug in a placement that is applied")
            self._state.migration = None
            if migration is not None:
                self._emit(Failed(migration.request_id, type(error).__name__, BUG, is_bug=True))

    def _carry_out(self, command: Command) -> None:
        try:
            handle(self._state, command)
        except Cancelled as error:
            self._emit(Failed(command.request_id, type(error).__name__, str(error)))
        except EngineError as error:
            log.info("%s failed: %s", type(command).__name__, error)
            self._emit(Failed(command.request_id, type(error).__name__, str(error)))
        except Exception as error:
            log.exception("bug in %s", type(command).__name__)
            self._emit(Failed(command.request_id, type(error).__name__, BUG, is_bug=True))

    def _step(self) -> None:
        loaded, tuning = self._state.loaded, self._state.tuning
        if loaded is None:
            return
        if tuning is not None:
            if self._state.may_tune:
                self._tune(tuning)
                return
            tuning.rest()
        if not self._mailbox.start(loaded.session.active()):
            return
        try:
            if loaded.session.idle:
                loaded.model.settle()
            else:
                loaded.session.step()
        except Exception as error:
            log.exception("bug in a step")
            failed = loaded.session.active()
            loaded.renew_session(self._emit)
            for request_id in failed:
                self._emit(Failed(request_id, type(error).__name__, BUG, is_bug=True))

    def _tune(self, tuning: Tuning) -> None:
        if not self._mailbox.start((tuning.request_id,)):
            return
        try:
            over = tuning.piece()
        except Exception as error:
            log.exception("bug in a sweep over numbers of workers")
            self._emit(Failed(tuning.request_id, type(error).__name__, BUG, is_bug=True))
            over = True
        if over:
            self._state.tuning = None
