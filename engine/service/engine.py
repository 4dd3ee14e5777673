"""The in-process engine: one thread that takes commands, makes steps, and sends events to its listeners.

Idle, the thread is blocked on its mailbox. Numpy, the tokenizer and the kernels are imported on that thread with the first
command, so that a window opens without waiting for them.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable

from engine.api.commands import Command
from engine.api.events import Event, Failed, Finished
from engine.api.values import RequestId
from engine.errors import EngineBug
from engine.service.mailbox import Mailbox

log = logging.getLogger("engine")

Listener = Callable[[Event], None]


class Engine:
    """An `EngineClient`. Every submitted command ends exactly once, in Finished or Failed, also when the engine is closed."""

    def __init__(self, listener: Listener | None = None) -> None:
        """Starts the engine thread. listener: the first subscriber."""
        self._listeners: tuple[Listener, ...] = () if listener is None else (listener,)
        self._mailbox = Mailbox()
        self._lock = threading.Lock()
        self._open: set[RequestId] = set()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, command: Command) -> None:
        """Queues a command; returns at once. A Cancel also stops the step or the load that its target is in.

        Raises:
            EngineBug: the request id is in use.
        """
        with self._lock:
            if command.request_id in self._open:
                raise EngineBug(f"request id {command.request_id} is in use")
            self._open.add(command.request_id)
        if not self._mailbox.put(command):
            self._emit(Finished(command.request_id, "cancelled"))

    def subscribe(self, listener: Listener) -> None:
        """Adds a listener, called on the engine's threads (that of sensors is another than that of answers): it hands the event
        over and returns."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def close(self) -> None:
        """Cancels everything and joins the engine's thread. Idempotent. Later commands end at once in Finished(cancelled)."""
        self._mailbox.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            if self._mailbox.wait():
                # The loop's module brings everything heavy with it; see the head of this file.
                importlib.import_module("engine.service.loop").Loop(self._mailbox, self._emit).run()
        except Exception as error:
            log.exception("the engine thread ended")
            self._mailbox.close()
            for request_id in tuple(self._open):
                self._emit(Failed(request_id, type(error).__name__, "the engine stopped; the log has the details", is_bug=True))
        for command in self._mailbox.leftovers():
            if command.request_id in self._open:
                self._emit(Finished(command.request_id, "cancelled"))

    def _emit(self, event: Event) -> None:
        if isinstance(event, Finished | Failed):
            with self._lock:
                self._open.discard(event.request_id)
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                log.exception("a listener failed on %s", type(event).__name__)
