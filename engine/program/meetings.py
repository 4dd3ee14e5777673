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
    LaneSpread,
    reads,
    writes,
)
from engine.program.lane_transfer import LaneRecv, LaneSend

_FREE = (LaneAdd, LaneExpertsDown, LaneExpertsUp, LaneGatedAct, LaneLinear, LaneNorm, LanePrepare, LaneRoute)
"""Ops that touch nothing but the buffers they name. The others touch the cache too, or stand where the number of rows changes."""
_CROSSING = (LaneSend, LaneRecv)


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
    return all_meetings(ops)[0]


def all_meetings(ops: Sequence[LaneOp]) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """The same, and for each op that is a node's part whether the workers of that node must be done with theirs, others not."""
    meets: list[bool] = []
    of_team: set[int] = set()
    beside: list[tuple[int, _Named]] = []  # since the last meeting
    named = [_Named(op) for op in ops]
    for i, op in enumerate(ops):
        beside.append((i, named[i]))
        later = ops[i + 1] if i + 1 < len(ops) else None
        if isinstance(op, _CROSSING):  # no work: each worker tells or waits for itself
            beside.pop()
            meets.append(isinstance(later, LaneSend) and bool(beside))
            if meets[-1]:
                beside = []
            continue
        apart = later is not None and not all(isinstance(one, _FREE) for one in (op, later))
        if isinstance(op, LaneHeads) and not op.sync:
            meets.append(False)
            continue
        before = [] if later is None else [at for at, one in beside if _touch(one, named[i + 1])]
        node = None if later is None else _node(later)
        if before and not apart and node is not None and all(_node(ops[at]) == node for at in before):
            of_team.add(before[-1])
            before = []
        meets.append(later is not None and (apart or bool(before)))
        if meets[-1]:
            beside = []
    return tuple(meets), tuple(i in of_team and not meets[i] for i in range(len(ops)))


def _node(op: LaneOp) -> int | None:
    """The node whose workers do the op, if it is a part of one."""
    return op.part.node if isinstance(op, LaneSpread) and op.part is not None else None


def _by_depth(ops: Sequence[LaneOp]) -> list[LaneOp]:
    depths: list[int] = []
    named = [_Named(op) for op in ops]
    for i, op in enumerate(named):
        depths.append(max((depths[j] + 1 for j in range(i) if _touch(named[j], op)), default=0))
    return [ops[i] for i in sorted(range(len(ops)), key=lambda i: depths[i])]


def _parts_of_one(a: LaneOp, b: LaneOp) -> bool:
    """Whether two linear ops are parts of one on two nodes: they write to different places of the same rows."""
    if not isinstance(a, LaneLinear) or not isinstance(b, LaneLinear) or None in (_node(a), _node(b)):
        return False
    return _node(a) != _node(b) and (a.unit, a.source, a.acts) == (b.unit, b.source, b.acts)


class _Named:
    """An op with the names of what it reads and what it writes, to be asked more than once."""

    __slots__ = ("op", "read", "written")

    def __init__(self, op: LaneOp) -> None:
        self.op = op
        self.read = {buffer.name for buffer in reads(op)}
        self.written = {buffer.name for buffer in writes(op)}


def _touch(a: _Named, b: _Named) -> bool:
    """Whether the order of two ops matters."""
    meets = not (a.written.isdisjoint(b.read) and a.written.isdisjoint(b.written) and a.read.isdisjoint(b.written))
    return meets and not _parts_of_one(a.op, b.op)
