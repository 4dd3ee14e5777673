"""What a sweep tries, in which order, and what its figures say: pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from engine.hardware.topology import Topology
from engine.hardware.worker_plan import plan_cores
from engine.placement.threads import MAX_THREADS

TIE = 0.02
"""Figures nearer to each other than this, or than they differ among themselves, say nothing: the fewer threads win, which leave
more to others."""
CHUNKS = (64, 128, 256, 512, 1024, 2048)
SIZES = 3
"""Chunks that are tried."""


def thread_counts(topology: Topology) -> tuple[int, ...]:
    """Numbers of workers to try, ascending: a half, three quarters and all of the cores, what is planned by itself, all with the
    small cores where there are any, and one point with every thread of every core."""
    cores = topology.usable_cores
    large = [core for core in cores if core.kind == "performance"] or list(cores)
    quota = len(topology.cores) * 8 if topology.quota_cores is None else max(1, int(topology.quota_cores))
    n = min(len(large), quota)
    found = {math.ceil(n / 2), math.ceil(3 * n / 4), n, min(len(cores), quota), len(plan_cores(topology).workers)}
    found.add(min(len(topology.allowed_cpus), quota))
    return tuple(sorted(one for one in found if 1 <= one <= MAX_THREADS))


def chunk_sizes(most: int) -> tuple[int, ...]:
    """Chunks of a prompt to try, ascending, none longer than the model was made ready for."""
    return tuple(sorted({*(one for one in CHUNKS if one < most), most}))[-SIZES:]


def in_turns(values: Sequence[int], n_rounds: int) -> tuple[int, ...]:
    """All values in each round, there and back: what drifts meanwhile cancels out."""
    return tuple(one for turn in range(n_rounds) for one in (values if turn % 2 == 0 else tuple(reversed(values))))


def rate(samples: Sequence[float]) -> float:
    """The middle of the samples, which a busy moment does not move."""
    return median(samples)


def spread(samples: Sequence[float]) -> float:
    """How far the samples of one setting lie from their middle, in parts of it; 0 for a single one."""
    middle = median(samples)
    return median(abs(one - middle) for one in samples) / middle if middle else 0.0


def best(found: Mapping[int, Sequence[float]]) -> int:
    """The smallest setting that is as good as the fastest."""
    fastest = max(found, key=lambda one: rate(found[one]))
    most = rate(found[fastest])
    return min(one for one in found if rate(found[one]) >= most * (1 - max(TIE, spread(found[fastest]), spread(found[one]))))
