"""A thread that brings experts to their slots while a step runs, and the one that steps, which hands them over and waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from engine.runtime.driver import DRIVER
from engine.runtime.promotion import Move


class Carrier:
    """bring(moves): called by the thread, for one thing at a time.

    It begins when whoever steps lets go of the driver: what it does needs the interpreter too, and before that a card that has
    been started waits for the CPU, which waits for the interpreter.
    """

    def __init__(self, bring: Callable[[Sequence[Move]], None]) -> None:
        self._bring = bring
        self._asked: SimpleQueue[Sequence[Move] | None] = SimpleQueue()
        self._done: SimpleQueue[float | BaseException] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="pools", daemon=True)
        self._thread.start()
        self.is_busy = False

    def send(self, moves: Sequence[Move]) -> None:
        """These set off. Only when nothing is on its way."""
        self.is_busy = True
        self._asked.put(moves)

    def wait(self) -> float:
        """Until they are there; the seconds that it took. Raises: what bringing them raised."""
        found = self._done.get()
        self.is_busy = False
        if isinstance(found, BaseException):
            raise found
        return found

    def _run(self) -> None:
        while (moves := self._asked.get()) is not None:
            with DRIVER:
                started = time.perf_counter()
            try:
                self._bring(moves)
                self._done.put(time.perf_counter() - started)
            except BaseException as error:
                self._done.put(error)

    def close(self) -> None:
        """Ends the thread. Idempotent; only when nothing is on its way."""
        self._asked.put(None)
        self._thread.join()
