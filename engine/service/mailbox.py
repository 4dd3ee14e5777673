"""Commands on their way to the engine thread, and the flag that stops what the thread is doing. Thread-safe."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from engine.api.commands import Cancel, Command
from engine.api.values import RequestId


class StopFlag(Protocol):
    """What C code polls: see `kernels_pyx.executor.AbortFlag`."""

    def set(self) -> None:
        """Stops the running step or load."""

    def clear(self) -> None:
        """Lets the next one run."""


class Mailbox:
    """First in, first out. Which requests the thread works for is known here, so that a Cancel can stop exactly that work."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._commands: deque[Command] = deque()
        self._busy: frozenset[RequestId] = frozenset()
        self._flag: StopFlag | None = None
        self._closed = False
        self._nudged = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def stops(self, flag: StopFlag) -> None:
        """The flag that stops work under way; set by the engine thread once it has one."""
        with self._changed:
            self._flag = flag

    def put(self, command: Command) -> bool:
        """Queues a command; a Cancel of what the thread works for also raises the flag. False once closed."""
        with self._changed:
            if self._closed:
                return False
            self._commands.append(command)
            if isinstance(command, Cancel) and command.target in self._busy and self._flag is not None:
                self._flag.set()
            self._changed.notify()
            return True

    def wait(self) -> bool:
        """Blocks until there is a command, without taking it. False when the mailbox was closed instead."""
        with self._changed:
            self._changed.wait_for(lambda: self._commands or self._closed)
            return not self._closed

    def take(self, patience_s: float | None) -> Command | None:
        """The next command, waiting for it up to patience_s seconds (None: as long as it takes); None when there is none."""
        with self._changed:
            self._busy = frozenset()
            if not self._commands and not self._closed and patience_s != 0 and not self._nudged:
                self._changed.wait(patience_s)
            self._nudged = False
            return self._commands.popleft() if self._commands and not self._closed else None

    def nudge(self) -> None:
        """Who waits in `take` comes back, now or the next time, with or without a command."""
        with self._changed:
            self._nudged = True
            self._changed.notify()

    def start(self, busy: Iterable[RequestId]) -> bool:
        """The thread is about to work for these requests. False when it must not: a Cancel of one waits, or the end does."""
        with self._changed:
            self._busy = frozenset(busy)
            if self._closed or any(isinstance(one, Cancel) and one.target in self._busy for one in self._commands):
                return False
            if self._flag is not None:
                self._flag.clear()
            return True

    def take_cancelled(self) -> tuple[Command, ...]:
        """Queued commands that a Cancel, queued behind them, names; both leave the queue, target before Cancel."""
        with self._changed:
            cancels = [one for one in self._commands if isinstance(one, Cancel)]
            if not cancels:
                return ()
            targets = {one.target for one in cancels}
            taken = [one for one in self._commands if one.request_id in targets]
            found = {one.request_id for one in taken}
            taken += [one for one in cancels if one.target in found and one not in taken]
            self._commands = deque(one for one in self._commands if one not in taken)
            return tuple(taken)

    def close(self) -> None:
        """Stops the work under way; from now on nothing is taken or put."""
        with self._changed:
            self._closed = True
            if self._flag is not None:
                self._flag.set()
            self._changed.notify()

    def leftovers(self) -> tuple[Command, ...]:
        """What was never taken, after `close`."""
        with self._changed:
            left = tuple(self._commands)
            self._commands.clear()
            return left
