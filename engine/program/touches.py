"""Which ops of a lane touch which buffers, and what the lane exchanges: found in one pass, for all that ask."""

from __future__ import annotations

from collections.abc import Sequence

from engine.graph.ops import Buffer
from engine.program.lane_ops import LaneOp, reads, writes
from engine.program.lane_transfer import LaneRecv, LaneSend


class Touches:
    """Of one lane. ops: in the order in which they run.

    buffers: all that the ops touch, with the op that does so first, in that order; first, last: that op and the last one, by
    name; written: the ops that write, by name. sends, recvs: where what is sent and taken stands, by flag.
    """

    def __init__(self, ops: Sequence[LaneOp]) -> None:
        self.ops = ops
        self.buffers: list[tuple[Buffer, int]] = []
        self.first: dict[str, int] = {}
        self.last: dict[str, int] = {}
        self.written: dict[str, list[int]] = {}
        self.sends: dict[int, int] = {}
        self.recvs: dict[int, int] = {}
        for i, op in enumerate(ops):
            for buffer in reads(op):
                self._touch(buffer, i)
            for buffer in writes(op):
                self._touch(buffer, i)
                self.written.setdefault(buffer.name, []).append(i)
            if type(op) is LaneSend:
                self.sends[op.flag] = i
            elif type(op) is LaneRecv:
                self.recvs[op.flag] = i

    def _touch(self, buffer: Buffer, i: int) -> None:
        name = buffer.name
        if name not in self.first:
            self.first[name] = i
            self.buffers.append((buffer, i))
        self.last[name] = i
