"""DoctorOps: runs the checks of the doctor on a thread of its own and tells results one by one; keeps what is known.

The checks are imported on that thread: a window that starts waits for none of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.bridge.ui_thread import UiThread

if TYPE_CHECKING:
    from engine.advice.doctor.check import Check, CheckResult
    from engine.advice.doctor.context import Context
    from engine.advice.doctor.probes import Probes

    Checks = tuple[Check, ...]


class DoctorOps(QObject):
    """began(number of checks); arrived(CheckResult, checks done); ended(). A run that is asked for while one is under way takes
    its place, and nothing more is told of the other."""

    began = Signal(int)
    arrived = Signal(object, int)
    ended = Signal()

    def __init__(
        self,
        ui: UiThread,
        context: Callable[[], Callable[[], Context]],
        own: Callable[[], Checks] = tuple,
        table: Callable[[], Checks] | None = None,
        probes: Callable[[], Probes] | None = None,
        parent: QObject | None = None,
    ) -> None:
        """context, own: asked on the window's thread for each run. What context gives is called on the thread of the run, as is
        table, the engine's checks; own: those of the application. probes: what takes seconds, for runs of all checks."""
        super().__init__(parent)
        self._ui, self._context, self._own = ui, context, own
        self._table = table or (lambda: _engine_checks())
        self._probes = probes
        self._stop = threading.Event()
        self._run = 0
        self._running = False
        self._known: dict[str, tuple[CheckResult, ...]] = {}
        self._order: list[str] = []
        self._ended_s: float | None = None
        self._progress = (0, 0)

    @property
    def running(self) -> bool:
        """Whether a run is under way."""
        return self._running

    @property
    def progress(self) -> tuple[int, int]:
        """Checks done and all checks of the run under way."""
        return self._progress

    @property
    def results(self) -> tuple[CheckResult, ...]:
        """The newest result of every check that has run, in the order of the table."""
        return tuple(result for id in self._order for result in self._known.get(id, ()))

    @property
    def ended_s(self) -> float | None:
        """When the last run ended, seconds since the epoch; None before the first."""
        return self._ended_s

    def run(self, *, all_checks: bool = False) -> None:
        """Begins: the quick checks, or all of them."""
        self._stop.set()
        self._stop = stop = threading.Event()
        self._run += 1
        self._running = True
        number, make_context, own = self._run, self._context(), self._own()

        def tell(function: Callable[[], None]) -> None:
            self._ui.call(lambda: function() if number == self._run and not stop.is_set() else None)

        def work() -> None:
            context, checks = make_context(), [*self._table(), *own]
            order = [check.id for check in checks]
            wanted = [check for check in checks if check.quick or all_checks]
            tell(lambda: self._on_began(order, len(wanted)))
            with self._probing(context, all_checks):
                for done, check in enumerate(wanted, 1):
                    if stop.is_set():
                        return
                    found = _results(context, check)
                    tell(lambda check=check, found=found, done=done: self._on_found(check, found, done))  # type: ignore[misc]
            tell(self._on_ended)

        threading.Thread(target=work, name="doctor", daemon=True).start()

    @contextmanager
    def _probing(self, context: Context, all_checks: bool) -> Iterator[None]:
        """Whether cards write into each other's memory is tried where a check asks; the process of that ends with the run."""
        if self._probes is None or not all_checks:
            yield
            return
        with closing(self._probes()) as made:
            context.peers = made.peers
            yield

    def close(self) -> None:
        """Nothing is told any more. A check that is under way ends by itself, and the process does not wait for it."""
        self._stop.set()
        self._run += 1
        self._running = False

    def _on_began(self, order: list[str], n_checks: int) -> None:
        self._order = order
        self._progress = (0, n_checks)
        self.began.emit(n_checks)

    def _on_found(self, check: Check, found: tuple[CheckResult, ...], done: int) -> None:
        self._known[check.id] = found
        self._progress = (done, self._progress[1])
        for result in found:
            self.arrived.emit(result, done)

    def _on_ended(self) -> None:
        self._running = False
        self._ended_s = time.time()
        self.ended.emit()


def probes() -> Probes:
    """Those of the engine. They start a process with the first question, not before."""
    from engine.advice.doctor.probes import Probes

    return Probes()


def _engine_checks() -> Checks:
    from engine.advice.doctor.table import CHECKS

    return CHECKS


def _results(context: Context, check: Check) -> tuple[CheckResult, ...]:
    from engine.advice.doctor.table import run_checks

    return tuple(run_checks(context, (check,)))
