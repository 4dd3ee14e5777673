"""Where the ops of a CPU's lane find their weights, and who does them, on a machine with several nodes of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.placement.placement import Placement, WorkerPlan
from engine.program.lane_ops import LaneEmbed, LaneOp, LaneSpread
from engine.runtime.node_weights import NodeWeights, Slice, Stored
from engine.runtime.teams import Teams, teams_of


@dataclass(frozen=True, slots=True)
class Spreading:
    """weights: those that are copied to their nodes; None: all are read from the mapped file. node_of: of each processor."""

    placement: Placement
    node_of: Mapping[int, int]
    weights: NodeWeights | None

    def teams(self, workers: WorkerPlan) -> Teams:
        """These workers in teams for the nodes in use."""
        return teams_of(workers, self.placement.nodes, self.node_of)

    def stored(self, op: LaneOp, part: Slice) -> Stored | None:
        """A slice that an op reads, where it was copied to. Of an embedding a token reads one row: it stays mapped."""
        nodes = (op.part.node,) if isinstance(op, LaneSpread) and op.part is not None else self.placement.nodes_of(op.unit)
        if self.weights is None or not nodes or isinstance(op, LaneEmbed):
            return None
        return self.weights.place(op.unit, part, nodes)
