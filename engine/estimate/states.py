"""What the states of recurrent layers take, before anything is allocated."""

from __future__ import annotations

from collections.abc import Iterator

import psutil

from engine.arch.spec import DeltaNet, DeltaShape, ModelSpec
from engine.hardware.machine import Machine

MAX_SNAPSHOT_BYTES = 4 << 30
SNAPSHOT_SHARE = 0.05
"""Of the machine's memory: what snapshots may take, unless told otherwise, and at most MAX_SNAPSHOT_BYTES."""
MAX_SNAPSHOTS = 64
MAX_RUNNING = 8
"""Sequences that run at once."""


def state_bytes(spec: ModelSpec) -> int:
    """Bytes of the state of one sequence, however long it is: f32, of every recurrent layer."""
    return sum(4 * shape.state_floats for _, shape in state_shapes(spec))


def snapshot_budget(asked: int, ram_bytes: int = 0) -> int:
    """Bytes that snapshots may take: as asked for, 0 = what is right for a machine with ram_bytes, 0 = this one."""
    return asked or min(MAX_SNAPSHOT_BYTES, int((ram_bytes or psutil.virtual_memory().total) * SNAPSHOT_SHARE))


def snapshot_budget_of(machine: Machine, asked: int) -> int:
    """Bytes that snapshots may take: as asked for, 0 = no more than their share of a machine's memory and of each of its GPUs.

    Wherever the states lie: they keep their slots when they move.
    """
    gpus = () if machine.problem else machine.gpus
    shares = (int(SNAPSHOT_SHARE * (one.total_bytes or one.capacity)) for one in gpus)
    return asked or min(snapshot_budget(0, machine.ram_bytes), *shares, MAX_SNAPSHOT_BYTES)


def plan_slots(spec: ModelSpec, budget: int) -> tuple[int, int]:
    """(slots for states, how many of them are for snapshots), within `budget` bytes but one at least; (0, 0): no states.

    A sequence that runs needs two more slots, to read and to write, and one slot marks a state on the way. Where slots are large,
    fewer sequences run at once, so that they take about as much as snapshots may.
    """
    size = state_bytes(spec)
    if not size:
        return 0, 0
    n_snapshots = min(MAX_SNAPSHOTS, max(1, budget // size))
    n_running = min(MAX_RUNNING, max(1, budget // (2 * size)))
    return n_snapshots + 2 * n_running + 1, n_snapshots


def state_shapes(spec: ModelSpec) -> Iterator[tuple[int, DeltaShape]]:
    """(layer, shape of its state) of every recurrent layer."""
    for block in spec.blocks:
        if isinstance(block.mixer, DeltaNet):
            yield block.index, block.mixer.shape
