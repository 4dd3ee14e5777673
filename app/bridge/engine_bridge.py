"""EngineBridge: the one QObject between the application and the engine.

Commands go down from the UI thread; events come up on the engine's thread, are queued, and are told on the UI thread, with token
deltas merged to 30 a second.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, Qt, Signal

from app.bridge.engine_state import EngineState, reduced, submitted
from app.bridge.throttle import Throttle
from engine.api.client import EngineClient
from engine.api.commands import Cancel, Command
from engine.api.events import Event, Failed, Finished, TokenDelta
from engine.api.values import RequestId

DELTA_MS = 33
Watcher = Callable[[Event], None]


def merged(first: TokenDelta, then: TokenDelta) -> TokenDelta:
    """Two deltas of one request as one."""
    return replace(then, text=first.text + then.text, n_tokens=first.n_tokens + then.n_tokens)


class EngineBridge(QObject):
    """Signals: happened(Event), each event once, in order within a request; state_changed(EngineState)."""

    happened = Signal(object)
    state_changed = Signal(object)
    _arrived = Signal()

    def __init__(self, client: EngineClient, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._client = client
        self._state = EngineState()
        self._lock = threading.Lock()
        self._inbox: deque[Event] = deque()
        self._woken = False
        self._open = True
        self._deltas: dict[RequestId, TokenDelta] = {}
        self._watchers: dict[RequestId, Watcher] = {}
        self._flush_deltas = Throttle(DELTA_MS, self._on_flush, self)
        self._arrived.connect(self._on_arrived, Qt.ConnectionType.QueuedConnection)
        client.subscribe(self._receive)

    @property
    def state(self) -> EngineState:
        """What the engine is doing."""
        return self._state

    @staticmethod
    def new_id() -> RequestId:
        """An id that no other request has."""
        return RequestId(uuid.uuid4().hex)

    def submit(self, command: Command, watcher: Watcher | None = None) -> None:
        """Hands a command to the engine. watcher gets its events, on this thread, up to and with Finished or Failed."""
        if watcher is not None:
            self._watchers[command.request_id] = watcher
        self._set_state(submitted(self._state, command))
        self._client.submit(command)

    def cancel(self, target: RequestId) -> None:
        """Stops a request in any phase. It still ends in its own Finished or Failed."""
        self.submit(Cancel(self.new_id(), target))

    def close(self) -> None:
        """Closes the engine; nothing is told any more. Idempotent."""
        if not self._open:
            return
        self._open = False
        self._flush_deltas.cancel()
        self._client.close()

    def _receive(self, event: Event) -> None:
        """On the engine's thread. One queued signal wakes the UI thread for however many events wait."""
        with self._lock:
            self._inbox.append(event)
            if self._woken or not self._open:
                return
            self._woken = True
        self._arrived.emit()

    def _on_arrived(self) -> None:
        with self._lock:
            events, self._inbox = self._inbox, deque()
            self._woken = False
        if not self._open:
            return
        for event in events:
            if isinstance(event, TokenDelta):
                waiting = self._deltas.get(event.request_id)
                self._deltas[event.request_id] = event if waiting is None else merged(waiting, event)
                continue
            self._tell_delta(event.request_id)
            self._tell(event)
        if self._deltas:
            self._flush_deltas()

    def _on_flush(self) -> None:
        for request_id in tuple(self._deltas):
            self._tell_delta(request_id)

    def _tell_delta(self, request_id: RequestId) -> None:
        waiting = self._deltas.pop(request_id, None)
        if waiting is not None:
            self._tell(waiting)

    def _tell(self, event: Event) -> None:
        self._set_state(reduced(self._state, event))
        ended = isinstance(event, Finished | Failed)
        watcher = self._watchers.pop(event.request_id, None) if ended else self._watchers.get(event.request_id)
        if watcher is not None:
            watcher(event)
        self.happened.emit(event)

    def _set_state(self, state: EngineState) -> None:
        if state != self._state:
            self._state = state
            self.state_changed.emit(state)
