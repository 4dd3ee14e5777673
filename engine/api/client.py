"""EngineClient: what the application holds, whichever engine is behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine.api.commands import Command
from engine.api.events import Event


class EngineClient(Protocol):
    """In-process engine, remote engine, or a scripted one in tests."""

    def submit(self, command: Command) -> None:
        """Queues a command; returns at once; safe from any thread."""

    def subscribe(self, listener: Callable[[Event], None]) -> None:
        """Adds a listener. It is called on the engine's thread: a listener hands the event over and returns."""

    def close(self) -> None:
        """Cancels everything, joins the engine's threads. Idempotent."""
