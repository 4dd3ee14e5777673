"""What one kind of step does: lanes of fused ops over laid-out buffers. Frozen; holds no address and no data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.graph.ops import Buffer
from engine.placement.placement import Device
from engine.program.fuse import Phase
from engine.program.lane_ops import LaneOp, reads, writes


@dataclass(frozen=True, slots=True)
class Slot:
    """A buffer in the arena, alive from op `first` to op `last` and while others run beside those.

    stride: bytes from row to row (of one layout, for acts); act_offsets: per layout, -1 = not held.
    """

    name: str
    kind: Literal["f32", "acts", "partials", "routes"]
    offset: int
    nbytes: int
    stride: int
    first: int
    last: int
    act_offsets: tuple[int, int, int] = (-1, -1, -1)
    act_strides: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Lane:
    """The ops of one device, in order, and its buffers by name. meets: for each op, whether all workers meet after it."""

    device: Device
    ops: tuple[LaneOp, ...]
    meets: tuple[bool, ...]
    slots: dict[str, Slot]
    arena_bytes: int
    logits: Buffer


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps of `phase` with up to max_rows rows. f32: linears take f32 activations."""

    phase: Phase
    max_rows: int
    f32: bool
    lanes: tuple[Lane, ...]

    @property
    def arena_bytes(self) -> int:
        """Bytes of all arenas."""
        return sum(lane.arena_bytes for lane in self.lanes)

    def explain(self) -> str:
        """The plan as text, one op a line."""
        exact = ", f32 activations" if self.f32 else ""
        lines = [f"{self.phase}[{self.max_rows}]: {self.arena_bytes} bytes of buffers{exact}"]
        for lane in self.lanes:
            lines.append(f"  {lane.device}: {len(lane.ops)} ops")
            for i, op in enumerate(lane.ops):
                ins = ", ".join(buffer.name for buffer in reads(op))
                outs = ", ".join(buffer.name for buffer in writes(op))
                lines.append(f"  {i:4} {op.unit!s:<10} {type(op).__name__.removeprefix('Lane').lower():<9} {ins} -> {outs}")
        return "\n".join(lines)
