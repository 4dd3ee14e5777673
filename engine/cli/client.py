"""The engine as commands of the terminal use it: submit, then read the events until the end."""

from __future__ import annotations

import queue
import uuid
from collections.abc import Iterator
from types import TracebackType

from engine.api.commands import Cancel, Command, LoadModel
from engine.api.events import Event, Failed, Finished, ModelReady
from engine.api.values import LoadOptions, ModelInfo, RequestId
from engine.errors import EngineBug, EngineError
from engine.service.engine import Engine


class Client:
    """An in-process engine for one command. A context manager: leaving it closes the engine."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._engine = Engine(self._events.put)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._engine.close()

    def events(self, command: Command) -> Iterator[Event]:
        """The events of a command, Finished last.

        Raises:
            EngineError: it failed. EngineBug: it failed through a fault of the engine.
        """
        self.submit(command)
        while True:
            event = self.read(command.request_id)
            yield event
            if isinstance(event, Finished):
                return

    def submit(self, command: Command) -> None:
        """Starts a command; `read` gives its events."""
        self._engine.submit(command)

    def read(self, request_id: RequestId) -> Event:
        """The next event of a request; those of others are dropped. Raises like `events`."""
        while (event := self._events.get()).request_id != request_id:
            pass
        if isinstance(event, Failed):
            raise EngineBug(event.message) if event.is_bug else EngineError(event.message)
        return event

    def load(self, path: str, options: LoadOptions) -> ModelInfo:
        """Loads a model. Raises like `events`."""
        for event in self.events(LoadModel(new_id(), path, options)):
            if isinstance(event, ModelReady):
                return event.info
        raise EngineBug("a load ended without a model")

    def cancel(self, target: RequestId) -> None:
        """Asks for the end of a request; its own events tell when it came."""
        self._engine.submit(Cancel(new_id(), target))


def new_id() -> RequestId:
    """A request id that no other has."""
    return RequestId(uuid.uuid4().hex)
