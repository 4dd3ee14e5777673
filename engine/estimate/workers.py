"""What each worker of the CPU's team has for itself beside the working memory: about, for the ops that need most.

The exact sizes are in `kernels_pyx/c/ops`, which cut ops into tasks by the number of workers. A worker's memory is under a
megabyte except where prompts pass experts: there it holds the rows of one expert.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.program.lane_ops import LaneExpertsDown, LaneExpertsUp, LaneLinear, LaneOp, LaneRoute, matrices
from engine.program.plan import Lane
from engine.quants.formats import BY_ID
from kernels_pyx.executor import FEW_MAX, act_row_bytes
from kernels_pyx.formats import ACTS

PANEL_ROWS = 32
UNPACKED = 73_728
"""A panel of weights with its scales."""
FEW_ROWS = 256
LEAST = 80_000
"""What ops of one row take: attention, norms, states."""


def worker_bytes(lane: Lane, max_rows: int, types: Mapping[str, int]) -> int:
    """Bytes of one worker for the program of a lane."""
    return max(LEAST, *(_op_bytes(op, max_rows, types) for op in lane.ops)) if lane.ops else 0


def _op_bytes(op: LaneOp, max_rows: int, types: Mapping[str, int]) -> int:
    if not isinstance(op, LaneLinear | LaneRoute | LaneExpertsUp | LaneExpertsDown):
        return 0
    width = op.source.width
    acts = {ACTS.index(BY_ID[types[name]].act) for name in matrices(op)}
    row = sum(act_row_bytes(act, width) for act in acts)
    if isinstance(op, LaneExpertsUp):
        return 4 * width + max_rows * (row + 2 * 4 * PANEL_ROWS) + UNPACKED
    if isinstance(op, LaneExpertsDown):
        own = 0 if op.acts is not None else max_rows * op.choice.n_used * row
        return 4 * width + own + max_rows * 4 * 2 * PANEL_ROWS + UNPACKED
    both = 2 if isinstance(op, LaneLinear) and op.epilogue != "store" else 1
    outputs = 4 * max(both * FEW_MAX * FEW_ROWS, both * max_rows * PANEL_ROWS if max_rows > FEW_MAX and both > 1 else 0)
    own = 0 if op.acts is not None else FEW_MAX * row
    return 4 * width + own + outputs + (UNPACKED if max_rows > FEW_MAX else 0)
