"""Neighbours in a GPU's lane that some kernels do in one launch: attention of decode, and a router's rows and its choice.

Within a launch nothing orders what one program reads and another writes. So what such ops read lives until the last of them has
ended, and what they write lives from the first one on, whether a device joins them or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.program.lane_ops import LaneAttend, LaneOp, LanePosition, LanePrepare, LaneRoute, reads, writes


def joins(ops: Sequence[LaneOp]) -> dict[int, int]:
    """By the first of them, how many ops stand together."""
    found: dict[int, int] = {}
    end = 0
    for at in range(len(ops)):
        n = together(ops[at : at + 3])
        if at >= end and n > 1:
            found[at], end = n, at + n
    return found


def together(ops: Sequence[LaneOp]) -> int:
    """How many of these, from the first on, can be one launch."""
    match list(ops):
        case [LanePosition() as position, LaneAttend(rows=True) as attend, *behind]:
            if attend.layer != position.layer or attend.q != position.q or None in (position.k, position.v) or not position.store:
                return 1
            is_next = behind and isinstance(one := behind[0], LanePrepare) and one.source.plain and one.source.x == attend.out
            return 3 if is_next else 2
        case [LanePrepare() as prepare, LaneRoute() as route, *_] if route.acts == prepare.acts and not prepare.source.gather:
            return 2
    return 1


def lives(ops: Sequence[LaneOp]) -> Iterator[tuple[str, int, int]]:
    """(buffer, the first op, the last one) of everything that ops which stand together touch."""
    for at, n in joins(ops).items():
        for op in ops[at : at + n]:
            for buffer in (*reads(op), *writes(op)):
                yield buffer.name, at, at + n - 1
