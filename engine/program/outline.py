"""Graph and placement to lanes: which device does which ops. Shared by lowering and by estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.graph.ops import Buffer, Graph
from engine.placement.placement import Device, Gpu, Placement
from engine.program.fuse import Phase, fuse_up_to, named_ops
from engine.program.fuse_mixing import Style
from engine.program.lane_ops import LaneOp, writes
from engine.program.partition import Part, partition
from engine.program.spread import spread


@dataclass(frozen=True, slots=True)
class LaneOutline:
    """The fused ops of one device, not yet laid out in memory. logits: None where another lane has the head."""

    device: Device
    ops: tuple[LaneOp, ...]
    logits: Buffer | None


def outline(graph: Graph, placement: Placement, phase: Phase, max_rows: int) -> tuple[LaneOutline, ...]:
    """One lane for each GPU, and one for all nodes of memory, whose teams share its buffers; in order of first use.

    Raises:
        PlacementError: a unit without a place, or a cache apart from its mixer.
    """
    return outline_buckets(graph, placement, phase, (max_rows,))[0]


def outline_buckets(
    graph: Graph, placement: Placement, phase: Phase, buckets: Sequence[int]
) -> tuple[tuple[LaneOutline, ...], ...]:
    """The same for steps of several numbers of rows, fewest first: outlines that do not depend on those are found once.

    Raises:
        PlacementError: see `outline`.
    """
    named, last = named_ops(graph.ops, phase)
    logits = last[graph.logits.name]
    parts = partition(named, placement.joined)
    known: dict[Device, tuple[LaneOutline, int]] = {}
    return tuple(tuple(_outline(part, placement, phase, rows, logits, known) for part in parts) for rows in buckets)


def _outline(
    part: Part, placement: Placement, phase: Phase, max_rows: int, logits: Buffer, known: dict[Device, tuple[LaneOutline, int]]
) -> LaneOutline:
    """known: of fewer rows, and up to how many they are the same."""
    before, up_to = known.get(part.device, (None, 0))
    if before is not None and max_rows <= up_to:
        return before
    style: Style = "gpu" if isinstance(part.device, Gpu) else "cpu"
    ops, up_to = fuse_up_to(part.ops, phase, max_rows, style, part.late)
    if style == "cpu":
        ops = spread(ops, placement)
    here = any(buffer.name == logits.name for op in reversed(ops) for buffer in writes(op))
    found = LaneOutline(part.device, ops, logits if here else None)
    known[part.device] = found, up_to
    return found
