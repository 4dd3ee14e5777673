"""Where the ops of a CPU's lane find their weights, and which team does them, on a machine with several nodes of memory."""

from __future__ import annotations

from dataclasses import dataclass

from engine.placement.placement import Placement
from engine.program.lane_ops import LaneEmbed, LaneOp, LaneSpread
from engine.runtime.node_weights import NodeWeights, Slice, Stored
from engine.runtime.teams import Teams


@dataclass(frozen=True, slots=True)
class Spreading:
    """weights: those that are copied to their nodes; None: all are read from the mapped file."""

    placement: Placement
    teams: Teams
    weights: NodeWeights | None

    def team(self, op: LaneOp) -> int:
        """1 + the team that does an op, 0: all do."""
        return self.teams.of_op(op, self.placement)

    def stored(self, op: LaneOp, part: Slice) -> Stored | None:
        """A slice that an op reads, where it was copied to. Of an embedding a token reads one row: it stays mapped."""
        nodes = (op.part.node,) if isinstance(op, LaneSpread) and op.part is not None else self.placement.nodes_of(op.unit)
        if self.weights is None or not nodes or isinstance(op, LaneEmbed):
            return None
        return self.weights.place(op.unit, part, nodes)
