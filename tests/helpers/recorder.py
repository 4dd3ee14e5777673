"""An in-process engine for tests that writes down every event."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from engine.api.commands import Cancel, Command, Generate, LoadModel
from engine.api.events import Event, Failed, Finished, ModelReady, TokenDelta
from engine.api.values import ChatMessage, LoadOptions, ModelInfo, RequestId, SamplingParams
from engine.service.engine import Engine

PATIENCE_S = 60.0
_numbers = itertools.count()


def new_id(prefix: str = "r") -> RequestId:
    """A request id that no other has."""
    return RequestId(f"{prefix}{next(_numbers)}")


class Recorder:
    """Submits and waits. A context manager: leaving it closes the engine."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()
        self.engine = Engine(self._record)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.engine.close()

    def _record(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def of(self, request_id: RequestId) -> list[Event]:
        """The events of a request so far."""
        with self._changed:
            return [event for event in self.events if event.request_id == request_id]

    def wait_for(self, condition: Callable[[list[Event]], bool]) -> None:
        """Waits until the events fulfil a condition."""
        end = time.monotonic() + PATIENCE_S
        with self._changed:
            while not condition(self.events):
                assert self._changed.wait(end - time.monotonic()), f"waited in vain; last events: {self.events[-3:]}"

    def end_of(self, request_id: RequestId) -> Finished | Failed:
        """Waits for the end of a request."""

        def ends(events: list[Event]) -> list[Finished | Failed]:
            return [e for e in events if isinstance(e, Finished | Failed) and e.request_id == request_id]

        self.wait_for(lambda events: bool(ends(events)))
        return ends(self.events)[0]

    def run(self, command: Command) -> Finished | Failed:
        """Submits and waits for the end."""
        self.engine.submit(command)
        return self.end_of(command.request_id)

    def finished(self, command: Command) -> Finished:
        """Submits, waits, and wants success."""
        end = self.run(command)
        assert isinstance(end, Finished), end
        return end

    def load(self, path: Path, options: LoadOptions | None = None) -> ModelInfo:
        """Loads a model."""
        command = LoadModel(new_id("load"), str(path), options or LoadOptions())
        self.finished(command)
        return next(e.info for e in self.of(command.request_id) if isinstance(e, ModelReady))

    def text(self, request_id: RequestId) -> str:
        """The text of an answer so far."""
        return "".join(e.text for e in self.of(request_id) if isinstance(e, TokenDelta))

    def cancel(self, target: RequestId) -> RequestId:
        """Submits a Cancel."""
        command = Cancel(new_id("cancel"), target)
        self.engine.submit(command)
        return command.request_id


def chat(*texts: str, sampling: SamplingParams | None = None, continue_last: bool = False) -> Generate:
    """A request for the next answer; texts of user and assistant take turns."""
    roles = itertools.cycle(("user", "assistant"))
    messages = tuple(ChatMessage(role, text) for role, text in zip(roles, texts, strict=False))  # type: ignore[arg-type]
    default = SamplingParams(temperature=0.0, max_tokens=16)
    return Generate(new_id("chat"), messages=messages, sampling=sampling or default, continue_last=continue_last)
