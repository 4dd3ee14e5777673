"""Counters that only grow, as rates: what was added since the reading before, by the second."""

from __future__ import annotations


class Rates:
    """The counters of one source, by name."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, float]] = {}

    def of(self, name: str, value: float | None, now: float, wraps_at: float | None = None) -> float | None:
        """Per second, since the value before; None for the first one, or when the counter began anew. now: monotonic seconds."""
        if value is None:
            self._before.pop(name, None)
            return None
        before = self._before.get(name)
        self._before[name] = (now, value)
        if before is None or now <= before[0]:
            return None
        added = value - before[1]
        if added < 0 and wraps_at is not None:
            added += wraps_at
        return added / (now - before[0]) if added >= 0 else None
