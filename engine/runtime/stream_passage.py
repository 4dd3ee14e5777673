"""What the thread that sends weights to a GPU and the thread that launches its kernels know of each other."""

from __future__ import annotations

import sys
import threading

from engine.errors import Cancelled
from kernels_pyx.executor import AbortFlag

LOOK_S = 0.05
"""How often who waits looks whether it is still wanted."""
TURN_S = 1e-4
"""After so long who waits for the interpreter's lock gets it, while something is on its way."""


class Passage:
    """One step's way through all layers: what the thread that sends and the thread that computes know of each other."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sent = 0
        self._left = 0
        self._error: BaseException | None = None
        self.stopped = False

    def note(self, *, sent: int | None = None, left: int | None = None, error: BaseException | None = None) -> None:
        """sent: layers on their way; left: layers whose place is free."""
        with self._changed:
            self._sent, self._left = sent or self._sent, left or self._left
            self._error = error or self._error
            self._changed.notify_all()

    def stop(self) -> None:
        """Whoever waits goes."""
        with self._changed:
            self.stopped = True
            self._changed.notify_all()

    def wait_sent(self, n: int, abort: AbortFlag) -> None:
        """Until n layers are on their way. Raises: Cancelled, or what the sending thread met."""
        with self._changed:
            while not self._changed.wait_for(lambda: self._sent >= n or self._error is not None or self.stopped, LOOK_S):
                if abort.is_set:
                    raise Cancelled("the step was stopped")
            if self._error is not None:
                raise self._error
            if self.stopped:
                raise Cancelled("the step was stopped")

    def wait_left(self, n: int) -> bool:
        """Until n layers have left; False: it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._left >= n or self.stopped)
            return not self.stopped

    def is_whole(self, n: int) -> bool:
        """Whether all of n layers went their way."""
        return self._error is None and not self.stopped and self._sent == n


class Turns:
    """While something is on its way, threads of the interpreter give way to each other soon.

    Who launches kernels keeps the lock for a millisecond a layer otherwise, and the bus runs dry.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n = 0
        self._usual = 0.0

    def begin(self) -> None:
        """Something sets off."""
        with self._lock:
            if not self._n:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(TURN_S, self._usual))
            self._n += 1

    def end(self) -> None:
        """It is over."""
        with self._lock:
            self._n -= 1
            if not self._n:
                sys.setswitchinterval(self._usual)


TURNS = Turns()
