from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels_pyx.arena import Arena
from kernels_pyx.handoff import Handoff
from kernels_pyx.pool import Pool

OP_DTYPE: np.dtype[np.void]
BLOCK: int
FEW_MAX: int
LOGITS: int
MAX_WEIGHTS: int

def act_row_bytes(act: int, k: int) -> int: ...
def v_pad(v_dim: int) -> int: ...
def partial_floats(n_heads: int, v_dim: int) -> int: ...
def kv_head_bytes(type: int, dim: int) -> int: ...
def routes_bytes(n_experts: int, slots: int) -> int: ...

class AbortFlag:
    def set(self) -> None: ...
    def clear(self) -> None: ...
    @property
    def is_set(self) -> bool: ...

class CpuProgram:
    n_ops: int
    max_rows: int
    def __init__(
        self,
        ops: npt.NDArray[np.void],
        arena: Arena,
        pool: Pool,
        *,
        max_rows: int,
        max_position: int,
        n_blocks: int | Sequence[int],
        n_states: int = 0,
        keep: Any = None,
        isa: str | None = None,
        teams: Sequence[int] | None = None,
        order: npt.NDArray[np.int16] | None = None,
    ) -> None: ...
    @property
    def scratch_bytes(self) -> int: ...
    def run(
        self,
        token_ids: npt.NDArray[np.int32],
        positions: npt.NDArray[np.int32],
        seq_of_row: npt.NDArray[np.int32],
        block_tables: npt.NDArray[np.int32],
        out_rows: npt.NDArray[np.int32],
        logits: npt.NDArray[np.float32],
        abort: AbortFlag,
        op_ns: npt.NDArray[np.int64] | None = None,
        states: npt.NDArray[np.int32] | None = None,
        *,
        first: int = 0,
        end: int = -1,
        handoff: Handoff | None = None,
        let_go: Any = None,
        worker_ns: npt.NDArray[np.int64] | None = None,
    ) -> tuple[bool, int]: ...
