"""Who may ask a GPU's driver for what takes an idle card, while another thread launches steps whose kernels wait for the CPU.

Some calls wait until the card is idle (memory that is taken or given back, code that is loaded, graphs that are made or dropped),
some of them with the interpreter's lock held. Between the launch of a graph that waits at flags and the moment at which the
program of the CPU runs, the thread that steps still needs that lock: such a call would wait for the card, the card for the CPU,
and the CPU for the call, until the wait at the flag runs out. So the call is made within `DRIVER`, and who steps takes it before
the launch and has it until its program runs, which lets go of it as it lets go of the interpreter's lock.
"""

from __future__ import annotations

import threading
import time

TURN_S = 2e-5
"""Others look so often whether who steps has had the driver."""


class Driver:
    """A context for calls, also within each other; the thread that steps comes before all others."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._wanted = False

    def __enter__(self) -> None:
        while self._wanted and not self.is_mine:  # who has it already would wait for itself
            time.sleep(TURN_S)
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def take(self) -> None:
        """For the thread that steps, until `let_go`, or until the program to which it gives the lock begins."""
        self._wanted = True
        self.lock.acquire()
        self._wanted = False

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread holds it."""
        return bool(self.lock._is_owned())  # type: ignore[attr-defined]

    def let_go(self) -> None:
        """The calling thread holds it no more, if it still did."""
        if self.is_mine:
            self.lock.release()


DRIVER = Driver()
