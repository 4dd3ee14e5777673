"""Whether what is held grows steadily without a reason: a slow leak is told by its steadiness long before it is large. Pure.

Chats, caches and compilers take memory in steps and come to rest; what leaks goes on at one rate. So the newest minutes are cut
into parts, each of which must hold more than the one before by about as much as the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

WINDOW_S = 600.0
"""The newest looks that count."""
LEAST_S = 480.0
"""Of which there must be so many seconds."""
PARTS = 4
LEAST_BYTES_S = 0.4e9 / 3600
"""0.4 GB an hour: a few times what windows, logs and texts of long chats add."""
EVEN = 0.5
"""Each step from part to part is at least this share of their mean."""


def steady_growth(points: Sequence[tuple[float, int]], unsure: int = 0) -> float:
    """Bytes a second at which the newest points, (seconds, bytes), grow all the time; 0: they do not, or it is too early to say.

    unsure: bytes that may have a reason, or that the points may be off by.
    """
    if not points:
        return 0.0
    last_s = points[-1][0]
    newest = [one for one in points if last_s - one[0] <= WINDOW_S]
    span = last_s - newest[0][0]
    if span < LEAST_S:
        return 0.0
    parts: list[list[int]] = [[] for _ in range(PARTS)]
    for time_s, nbytes in newest:
        parts[min(PARTS - 1, int((time_s - newest[0][0]) / span * PARTS))].append(nbytes)
    if not all(parts):
        return 0.0
    means = [fmean(part) for part in parts]
    mean_step = (means[-1] - means[0]) / (PARTS - 1)
    steps = [after - before for before, after in pairwise(means)]
    rate = mean_step / (span / PARTS)
    if rate < LEAST_BYTES_S or min(steps) < EVEN * mean_step or (means[-1] - means[0]) <= unsure:
        return 0.0
    return rate
