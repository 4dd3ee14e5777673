"""What one step of the executor is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Rows of one step: a prefill chunk of one sequence, or one row for each of several sequences.

    token_ids, positions, seq_of_row: [n_rows] int32. block_tables: one int32 array per sequence, [n_groups, n_blocks], or
    [n_blocks] for all cache groups alike: block ids in order; block b holds the positions [b * BLOCK, (b + 1) * BLOCK) of its
    sequence, and every row's own position lies in one. Entries that no row's window reaches are not read.
    out_rows: [n_out] int32, rows whose logits are wanted.
    """

    phase: Literal["prefill", "decode"]
    token_ids: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int32]
    seq_of_row: npt.NDArray[np.int32]
    block_tables: tuple[npt.NDArray[np.int32], ...]
    out_rows: npt.NDArray[np.int32]
