"""Throttle: calls a function now, then at most once an interval, with the newest arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, Qt, QTimer


class Throttle(QObject):
    """The last call of a burst is never lost: it runs when the interval ends."""

    def __init__(self, interval_ms: int, function: Callable[..., None], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._function = function
        self._waiting: tuple[Any, ...] | None = None
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(interval_ms)
        self._timer.timeout.connect(self._on_timeout)

    def __call__(self, *arguments: Any) -> None:
        if self._timer.isActive():
            self._waiting = arguments
            return
        self._timer.start()
        self._function(*arguments)

    def flush(self) -> None:
        """Runs the call that waits, if one does, at once."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._function(*waiting)

    def cancel(self) -> None:
        """Forgets the call that waits."""
        self._waiting = None
        self._timer.stop()

    def _on_timeout(self) -> None:
        if self._waiting is not None:
            self._timer.start()
            self.flush()
