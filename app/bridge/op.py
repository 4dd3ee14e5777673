"""Op: one request to the engine with what to do when it ends. `Op(bridge, command).on(...).success(...).failure(...).run()`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from app.bridge.engine_bridge import EngineBridge
from engine.api.commands import Command
from engine.api.events import Event, Failed, Finished
from engine.api.values import RequestId


class Op:
    """Handlers run on the UI thread. Exactly one of success and failure runs, once, as the last."""

    def __init__(self, bridge: EngineBridge, command: Command) -> None:
        self._bridge = bridge
        self._command = command
        self._handlers: dict[type, Callable[[Any], None]] = {}

    def on(self, kind: type[Event] | Any, handler: Callable[[Any], None]) -> Self:
        """Calls `handler` with each event of this kind."""
        self._handlers[kind] = handler
        return self

    def success(self, handler: Callable[[Finished], None]) -> Self:
        """Calls `handler` when the request ended as asked, or was cancelled."""
        return self.on(Finished, handler)

    def failure(self, handler: Callable[[Failed], None]) -> Self:
        """Calls `handler` when the request ended in an error."""
        return self.on(Failed, handler)

    def run(self) -> RequestId:
        """Hands the command to the engine."""
        self._bridge.submit(self._command, self._on_event)
        return self._command.request_id

    def _on_event(self, event: Event) -> None:
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)
