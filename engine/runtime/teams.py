"""Workers in teams, one a node of memory that is in use: who does what of a CPU's lane where it spreads over several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.hardware.topology import Topology
from engine.placement.placement import Placement, WorkerPlan
from engine.program.lane_ops import LaneOp, LaneSpread


@dataclass(frozen=True, slots=True)
class Teams:
    """workers: those that have a part in it, team by team. of: the team of each; nodes: the node of each team.

    remote: nodes in use on which nobody works, whose memory the others read from afar.
    """

    workers: WorkerPlan
    of: tuple[int, ...]
    nodes: tuple[int, ...]
    remote: tuple[int, ...] = ()

    def of_node(self, nodes: Sequence[int]) -> int:
        """1 + the team that does what lies on these nodes, 0: all do."""
        if len(self.nodes) < 2 or len(nodes) != 1 or nodes[0] not in self.nodes:
            return 0
        return 1 + self.nodes.index(nodes[0])

    def of_op(self, op: LaneOp, placement: Placement) -> int:
        """The same of an op, by where its unit lies or which node's part it is."""
        if isinstance(op, LaneSpread) and op.part is not None:
            return self.of_node((op.part.node,))
        return self.of_node(placement.nodes_of(op.unit))

    @property
    def notes(self) -> tuple[str, ...]:
        """What is unusual, one sentence each."""
        return tuple(f"Nobody works on node {node}: its memory is read by workers of other nodes." for node in self.remote)


def node_of_cpu(topology: Topology) -> dict[int, int]:
    """The node whose memory each processor works on: its own, or the nearest one where its own has none."""
    return {cpu: topology.memory_of(node.node) for node in topology.nodes for cpu in node.cpus}


def teams_of(workers: WorkerPlan, nodes: Sequence[int], node_of: Mapping[int, int]) -> Teams:
    """The workers on these nodes, in teams; where there are none, all of them in one. Those that are not pinned are dealt out."""
    if not nodes:
        return Teams(workers, (0,) * workers.n_workers, ())
    free = [i for i, cpu in enumerate(workers.cores) if cpu not in node_of]
    home = {i: node_of[cpu] for i, cpu in enumerate(workers.cores) if cpu in node_of}
    home |= {i: nodes[at * len(nodes) // len(free)] for at, i in enumerate(free)}
    kept = sorted((i for i, node in home.items() if node in nodes), key=lambda i: (home[i], i))
    if not kept:
        return Teams(workers, (0,) * workers.n_workers, (), tuple(nodes))
    present = sorted({home[i] for i in kept})
    plan = WorkerPlan(tuple(workers.cores[i] for i in kept), workers.kept)
    remote = tuple(node for node in nodes if node not in present)
    return Teams(plan, tuple(present.index(home[i]) for i in kept), tuple(present), remote)
