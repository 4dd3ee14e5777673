"""The ops of a lane that hand rows to another lane or take them, and what a choice of experts becomes on the way.

Who copies is no matter of the op: the side of the GPU reads and writes the slots of a CPU lane, and a GPU that sends to another
writes there. A lane of the CPU only tells that rows are ready, or waits until they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.arch.units import UnitId
from engine.graph.ops import Buffer
from engine.placement.placement import Device


@dataclass(frozen=True, slots=True)
class Choice:
    """How rows are spread over experts.

    chosen, weights: [n_rows, n_used] int32 and f32, see `engine.graph.ops.Route`. table: on the CPU the buffer that holds who
    passes whom, grouped by expert; None on a GPU, whose kernels read chosen and weights.
    """

    table: Buffer | None
    n_experts: int
    n_used: int
    chosen: Buffer
    weights: Buffer

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """What experts read to know whom they are for."""
        return (self.chosen, self.weights) if self.table is None else (self.table,)


@dataclass(frozen=True, slots=True)
class LaneSend:
    """Hands rows of `buffers` to the lane of `to`. flag: which exchange of the plan this is.

    The other lane has them under the names of the LaneRecv of the same flag, in the same order.
    """

    unit: UnitId
    buffers: tuple[Buffer, ...]
    to: Device
    flag: int
    out_rows: bool


@dataclass(frozen=True, slots=True)
class LaneRecv:
    """Rows of `buffers`, which the lane of `source` hands over with the LaneSend of the same flag."""

    unit: UnitId
    buffers: tuple[Buffer, ...]
    source: Device
    flag: int
    out_rows: bool


@dataclass(frozen=True, slots=True)
class LaneChosen:
    """The table of a choice, on the CPU, from received `chosen` and `weights`. A chosen of -1 is computed elsewhere."""

    unit: UnitId
    choice: Choice
    out_rows: bool


@dataclass(frozen=True, slots=True)
class LaneTell:
    """`chosen` and `weights` of a choice, on the CPU, from its table: for a LaneSend. Experts come in the order of their ids."""

    unit: UnitId
    choice: Choice
    out_rows: bool


LaneTransfer = LaneSend | LaneRecv | LaneChosen | LaneTell


def transfer_reads(op: LaneTransfer) -> tuple[Buffer, ...]:
    """Buffers whose contents the op needs."""
    match op:
        case LaneSend():
            return op.buffers
        case LaneRecv():
            return ()
        case LaneChosen():
            return (op.choice.chosen, op.choice.weights)
        case LaneTell():
            return op.choice.buffers


def transfer_writes(op: LaneTransfer) -> tuple[Buffer, ...]:
    """Buffers that the op fills."""
    match op:
        case LaneSend():
            return ()
        case LaneRecv():
            return op.buffers
        case LaneChosen():
            return op.choice.buffers
        case LaneTell():
            return (op.choice.chosen, op.choice.weights)
