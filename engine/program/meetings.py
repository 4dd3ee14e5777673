"""In which order ops run and where workers meet: ops that do not touch each other's buffers run side by side."""

from __future__ import annotations

from collections.abc import Sequence

from engine.program.lane_latent import LaneHeads
from engine.program.lane_ops import (
    LaneAdd,
    LaneExpertsDown,
    LaneExpertsUp,
    LaneGatedAct,
    LaneLinear,
    LaneNorm,
    LaneOp,
    LanePrepare,
    LaneRoute,
    reads,
    writes,
)
from engine.program.lane_transfer import LaneRecv, LaneSend

_FREE = (LaneAdd, LaneExpertsDown, LaneExpertsUp, LaneGatedAct, LaneLinear, LaneNorm, LanePrepare, LaneRoute)
"""Ops that touch nothing but the buffers they name. The others touch the cache too, or stand where the number of rows changes."""


def in_order(ops: Sequence[LaneOp]) -> tuple[LaneOp, ...]:
    """The ops, moved so that those that may run side by side stand side by side; an op still finds the same in its buffers."""
    moved: list[LaneOp] = []
    free: list[LaneOp] = []
    for op in ops:
        if isinstance(op, _FREE):
            free.append(op)
        else:
            moved += [*_by_depth(free), op]
            free = []
    return (*moved, *_by_depth(free))


def meetings(ops: Sequence[LaneOp]) -> tuple[bool, ...]:
    """For each op, whether all workers must be done with it and those before it when the next one starts."""
    meets: list[bool] = []
    beside: list[LaneOp] = []  # since the last meeting
    for i, op in enumerate(ops):
        beside.append(op)
        later = ops[i + 1] if i + 1 < len(ops) else None
        if isinstance(op, LaneSend | LaneRecv):  # no work: each worker tells or waits for itself
            beside.pop()
            meets.append(isinstance(later, LaneSend) and bool(beside))
            if meets[-1]:
                beside = []
            continue
        apart = later is not None and not all(isinstance(one, _FREE) for one in (op, later))
        if isinstance(op, LaneHeads) and not op.sync:
            meets.append(False)
            continue
        meets.append(later is not None and (apart or any(_touch(one, later) for one in beside)))
        if meets[-1]:
            beside = []
    return tuple(meets)


def _by_depth(ops: Sequence[LaneOp]) -> list[LaneOp]:
    depths: list[int] = []
    for i, op in enumerate(ops):
        depths.append(max((depths[j] + 1 for j in range(i) if _touch(ops[j], op)), default=0))
    return [ops[i] for i in sorted(range(len(ops)), key=lambda i: depths[i])]


def _touch(a: LaneOp, b: LaneOp) -> bool:
    """Whether the order of two ops matters."""
    written = {buffer.name for buffer in writes(a)}
    return bool(written & {buffer.name for buffer in (*reads(b), *writes(b))}) or bool(
        {buffer.name for buffer in reads(a)} & {buffer.name for buffer in writes(b)}
    )
