"""How much more time a test may take where others run beside it: caches, memory and the threads of a core are shared then."""

from __future__ import annotations

import os
import time

BESIDE = 1.5 if "PYTEST_XDIST_WORKER" in os.environ else 1.0
"""Bounds on CPU time are multiplied by it. They are met as they are written where a test runs alone."""
_WORK_MS = 2.0
"""What `_work` takes on a core of 3.5 GHz (Zen 3) that shares nothing."""


def slowness() -> float:
    """How many times slower than that core this one is at the moment, at least 1: a core whose other thread belongs to somebody
    else computes half as fast for seconds. Of steps that only compute, what is measured is divided by it."""
    return max(1.0, min(_work() for _ in range(3)) / _WORK_MS)


def _work() -> float:
    """Milliseconds of processor time of a piece of work as estimates and item models do it: tuples looked up, counts kept."""
    started = time.thread_time()
    places = {("mixer", i): i % 5 for i in range(2000)}
    keys = [("mixer", i) for i in range(2000)]
    for _ in range(5):
        counts: dict[int, int] = {}
        for key in keys:
            place = places.get(key)
            if isinstance(place, int):
                counts[place] = counts.get(place, 0) + 1
    return 1e3 * (time.thread_time() - started)
