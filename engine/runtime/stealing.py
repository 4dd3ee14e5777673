"""Whose tasks a worker takes when its own are done: first of those that share its L3 cache, then of its node, then of others."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from engine.hardware.topology import Topology
from engine.hardware.topology_read import topology


def order_for(cores: tuple[int, ...]) -> npt.NDArray[np.int16]:
    """`steal_order` on this machine."""
    return _order(cores, topology())


@functools.lru_cache(maxsize=16)
def _order(cores: tuple[int, ...], machine: Topology) -> npt.NDArray[np.int16]:
    return steal_order(cores, machine)


def steal_order(cores: tuple[int, ...], machine: Topology) -> npt.NDArray[np.int16]:
    """[n_workers, n_workers]: for each worker all of them, itself first, from near to far; among equals around from itself, so
    that not all take from the same one. cores: the processor of each worker; of one that is not pinned nothing is near."""
    places = {cpu: (core.node, core.l3) for core in machine.cores for cpu in core.cpus}
    n = len(cores)
    found = [places.get(cpu, (-1 - i, -1 - i)) for i, cpu in enumerate(cores)]
    node, group = (np.array(values) for values in zip(*found, strict=True))
    far = (node[:, None] != node[None, :]).astype(np.int64) + (group[:, None] != group[None, :])
    around = (np.arange(n)[None, :] - np.arange(n)[:, None]) % n
    return np.argsort(far * n + around, axis=1, kind="stable").astype(np.int16)
