"""Graph and placement to lanes: which device does which ops. Shared by lowering and by estimates."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import PlacementError
from engine.graph.ops import Buffer, Graph
from engine.placement.placement import Device, Placement
from engine.program.fuse import Phase, fuse
from engine.program.lane_ops import LaneOp


@dataclass(frozen=True, slots=True)
class LaneOutline:
    """The fused ops of one device, not yet laid out in memory."""

    device: Device
    ops: tuple[LaneOp, ...]
    logits: Buffer


def outline(graph: Graph, placement: Placement, phase: Phase, max_rows: int) -> tuple[LaneOutline, ...]:
    """One lane per device, in order of first use.

    Raises:
        PlacementError: a unit without a place, or units on more than one device, which this version does not run.
    """
    devices = {placement.device_of(unit) for unit in {op.unit for op in graph.ops}}
    if len(devices) != 1:
        names = ", ".join(str(device) for device in sorted(devices))
        raise PlacementError(f"the placement spreads over {names}; this version runs a model on one device")
    ops, logits = fuse(graph.ops, graph.logits, phase, max_rows)
    return (LaneOutline(devices.pop(), ops, logits),)
