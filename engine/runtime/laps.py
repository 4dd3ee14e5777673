"""What the seconds of one piece of work went to, by name: summed, for whoever wants to know why it took so long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Laps:
    """seconds: by name, in the order in which they were first met. Filled by one thread. under_way: which one, for any thread."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.under_way = ""

    @contextmanager
    def lap(self, name: str) -> Iterator[None]:
        """What is done within counts to `name`, also where it fails."""
        started, before, self.under_way = time.perf_counter(), self.under_way, name
        try:
            yield
        finally:
            self.under_way = before
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
