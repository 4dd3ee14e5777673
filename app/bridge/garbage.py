"""Garbage: unreachable objects are searched for on the thread of the window alone.

The interpreter searches on whichever thread happens to allocate. Where widgets are among what it finds, that thread would destroy
them beside the window's own work, and the process ends later, at any place.
"""

from __future__ import annotations

import gc

from PySide6.QtCore import QObject, QTimer

EACH_MS = 1000
MOST = (700, 10, 30)
"""Of each generation: new objects, then searches of the one below. A full search stops the window for some ten milliseconds."""


class Garbage(QObject):
    """Made on the window's thread, after which no other thread searches any more until `close`."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        gc.disable()
        self._timer = QTimer(self)
        self._timer.setInterval(EACH_MS)
        self._timer.timeout.connect(self.search)
        self._timer.start()

    def search(self) -> None:
        """Searches the oldest generation that is due, and all younger ones with it."""
        counts = gc.get_count()
        due = [generation for generation in (2, 1, 0) if counts[generation] > MOST[generation]]
        if due:
            gc.collect(due[0])

    def close(self) -> None:
        """The interpreter searches by itself again. Idempotent."""
        self._timer.stop()
        gc.enable()
