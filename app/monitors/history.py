"""History: the last N values of one gauge. No Qt."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class History:
    """A ring of at most `length` values with the peak and mean of what it holds."""

    def __init__(self, length: int = 60) -> None:
        self._values: deque[float] = deque(maxlen=length)

    def push(self, value: float) -> None:
        """Add the newest value."""
        self._values.append(value)

    def replace_last(self, value: float) -> None:
        """The newest value is this by now."""
        if self._values:
            self._values[-1] = value

    def clear(self) -> None:
        """Forget everything."""
        self._values.clear()

    def __len__(self) -> int:
        return len(self._values)

    @property
    def values(self) -> Sequence[float]:
        """Oldest first."""
        return tuple(self._values)

    @property
    def length(self) -> int:
        """How many values it can hold."""
        return self._values.maxlen or 0

    @property
    def peak(self) -> float | None:
        """Largest value, None when empty."""
        return max(self._values) if self._values else None

    @property
    def mean(self) -> float | None:
        """Mean value, None when empty."""
        return sum(self._values) / len(self._values) if self._values else None
