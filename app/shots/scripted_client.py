"""ScriptedClient: an engine for pictures: it says what it is told to say, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable

from engine.api.commands import Command
from engine.api.events import Event


class ScriptedClient:
    """tell(event) is heard by all; commands that arrive are answered by `answer`, with nothing by default."""

    def __init__(self, answer: Callable[[Command], tuple[Event, ...]] = lambda command: ()) -> None:
        self._answer = answer
        self._listeners: list[Callable[[Event], None]] = []
        self.commands: list[Command] = []

    def submit(self, command: Command) -> None:
        """Answers at once."""
        self.commands.append(command)
        for event in self._answer(command):
            self.tell(event)

    def subscribe(self, listener: Callable[[Event], None]) -> None:
        """Adds a listener."""
        self._listeners.append(listener)

    def tell(self, event: Event) -> None:
        """Something happened."""
        for listener in self._listeners:
            listener(event)

    def close(self) -> None:
        """Nothing runs."""
