"""Graph and placement to lanes: which device does which ops. Shared by lowering and by estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import PlacementError
from engine.graph.ops import Buffer, Graph
from engine.placement.placement import Device, Gpu, Numa, Placement
from engine.program.fuse import Phase, fuse_lane, named_ops
from engine.program.fuse_mixing import Style
from engine.program.lane_ops import LaneOp, writes
from engine.program.partition import Part, partition


@dataclass(frozen=True, slots=True)
class LaneOutline:
    """The fused ops of one device, not yet laid out in memory. logits: None where another lane has the head."""

    device: Device
    ops: tuple[LaneOp, ...]
    logits: Buffer | None


def outline(graph: Graph, placement: Placement, phase: Phase, max_rows: int) -> tuple[LaneOutline, ...]:
    """One lane per device, in order of first use.

    Raises:
        PlacementError: a unit without a place, a cache apart from its mixer, or units on more than one node of memory, which this
            version does not run.
    """
    check_nodes(graph, placement)
    return outline_lanes(graph, placement, phase, max_rows)


def check_nodes(graph: Graph, placement: Placement) -> None:
    """Raises PlacementError where units lie on more than one node of memory, or have no place."""
    nodes = {device for device in (placement.device_of(op.unit) for op in graph.ops) if isinstance(device, Numa)}
    if len(nodes) > 1:
        names = ", ".join(str(device) for device in sorted(nodes))
        raise PlacementError(f"the placement spreads over {names}; this version runs a model on one node of memory and on GPUs")


def outline_lanes(graph: Graph, placement: Placement, phase: Phase, max_rows: int) -> tuple[LaneOutline, ...]:
    """The same for any devices.

    Raises:
        PlacementError: a unit without a place, or a cache apart from its mixer.
    """
    return outline_buckets(graph, placement, phase, (max_rows,))[0]


def outline_buckets(
    graph: Graph, placement: Placement, phase: Phase, buckets: Sequence[int]
) -> tuple[tuple[LaneOutline, ...], ...]:
    """The same for steps of several numbers of rows: what does not depend on those is found once, of decode all of a GPU's ops.

    Raises:
        PlacementError: see `outline_lanes`.
    """
    named, last = named_ops(graph.ops, phase)
    logits = last[graph.logits.name]
    parts = partition(named, placement)
    known: dict[Device, LaneOutline] = {}
    return tuple(tuple(_outline(part, phase, rows, logits, known) for part in parts) for rows in buckets)


def _outline(part: Part, phase: Phase, max_rows: int, logits: Buffer, known: dict[Device, LaneOutline]) -> LaneOutline:
    if part.device in known:
        return known[part.device]
    style: Style = "gpu" if isinstance(part.device, Gpu) else "cpu"
    ops = fuse_lane(part.ops, phase, max_rows, style, part.late)
    here = any(buffer == logits for op in ops for buffer in writes(op))
    found = LaneOutline(part.device, ops, logits if here else None)
    if phase == "decode" and style == "gpu":
        known[part.device] = found
    return found
