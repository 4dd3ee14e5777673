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
    states: [n_seqs, 4] int32, for models that keep a state a sequence: the slot that holds it (read only; anything where the rows
    begin at position 0), the slot that gets it after the rows, and, unless -1, a third slot that gets it after the first so many
    rows, at least one. None: the model's own slots, where sequence i of a batch goes on as sequence i of the next.
    """

    phase: Literal["prefill", "decode"]
    token_ids: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int32]
    seq_of_row: npt.NDArray[np.int32]
    block_tables: tuple[npt.NDArray[np.int32], ...]
    out_rows: npt.NDArray[np.int32]
    states: npt.NDArray[np.int32] | None = None
