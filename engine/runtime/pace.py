"""How much of the machine work beside steps may take: its threads rest when steps have become too slow since it began."""

from __future__ import annotations

import time

KEPT = 0.78
"""Of the speed of steps, that the work aims at leaving. On average: a step in which it is unlucky says nothing."""
FORGOTTEN = 0.95
"""What a step counts for, of what the next one does."""
MOST_REST = 4.0
"""Of the time of a piece of work, that its thread rests behind it."""
REST_S = 0.25
"""The longest rest."""
QUIET_S = 0.5
"""Without a step for so long, nobody is slowed."""


class Pace:
    """One thread steps, others work."""

    def __init__(self, usual_s: float) -> None:
        """usual_s: what a step took without the work; 0: not known."""
        self._usual_s = usual_s
        self._rest = 0.0
        self._last = 0.0
        self._usual = self._took = 0.0

    def stepped(self, seconds: float) -> None:
        """A step of the usual kind took so long."""
        self._last = time.monotonic()
        if not self._usual_s:
            return
        self._usual = FORGOTTEN * self._usual + self._usual_s
        self._took = FORGOTTEN * self._took + seconds
        if self._took * KEPT > self._usual:
            self._rest = min(MOST_REST, max(0.25, 1.25 * self._rest))
        else:
            self._rest *= 0.5

    def pause(self, seconds: float) -> None:
        """Behind a piece of work that took so long."""
        if self._rest > 0.01 and time.monotonic() - self._last < QUIET_S:
            time.sleep(min(REST_S, self._rest * seconds))
