"""What the kernels of a GPU lane are given: tensors of one device with what must be known to read them. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


HALVED = 16.0
"""What activations are divided by as f16, where 65504 is the largest number: some models' pass that, none's a million."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """One matrix or n_matrices of one size, quantised as the file holds them, blocks padded or not.

    data: uint8, one-dimensional, contiguous. Row r of matrix m are the row_bytes bytes from first + m * step + r * row_bytes on:
    n_in values in blocks of `format` (a name of `engine.triton_kernels.formats.BLOCKS`).
    """

    data: Tensor
    format: str
    n_in: int
    n_out: int
    row_bytes: int
    first: int = 0
    n_matrices: int = 1
    step: int = 0


@dataclass(frozen=True, slots=True)
class NormWeight:
    """weight: f32 [width]."""

    weight: Tensor
    eps: float


@dataclass(frozen=True, slots=True)
class Acts:
    """Rows that linears multiply, as their kernels want them: f32 [n_rows, width], or 8-bit with scales, or both.

    values: f32. codes: int8 [n_rows, width]; scales f32 [n_rows, width / 32], of 32 codes; sums f32 [n_rows, width / 16], of 16
    codes, times their scale. halves: f16, the values divided by HALVED, for many rows. Where a kernel quantises for itself or a
    form computes in f32, what it does not need is None.
    """

    values: Tensor | None
    codes: Tensor | None
    scales: Tensor | None
    sums: Tensor | None
    halves: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and width."""
        for tensor in (self.values, self.codes, self.halves):
            if tensor is not None:
                return tensor.shape[0], tensor.shape[1]
        raise ValueError("activations without any tensor")

    def first(self, n_rows: int) -> Acts:
        """The first n_rows rows."""
        given = (self.values, self.codes, self.scales, self.sums, self.halves)
        return Acts(*(None if tensor is None else tensor[:n_rows] for tensor in given))


@dataclass(frozen=True, slots=True)
class Choice:
    """Which experts a row passes: chosen int32 [n_rows, n_used], weights f32 [n_rows, n_used]. chosen -1: computed elsewhere."""

    chosen: Tensor
    weights: Tensor


@dataclass(frozen=True, slots=True)
class Tally:
    """Where a router leaves what it chose, to be counted. ids: int32 [n_rows, n_used], of few rows; else None.

    counts: int32 [n_experts], to which every choice adds 1, of many rows; else None.
    """

    ids: Tensor | None
    counts: Tensor | None


@dataclass(frozen=True, slots=True)
class Pooled:
    """Tells choices apart by who computes them. slot_of: int32 [n_experts], where the pool has a copy, -1: nowhere.

    here, there: int32 [n_rows, n_used]: the slots of what was chosen, and the experts that have none; -1 elsewhere.
    """

    slot_of: Tensor
    here: Tensor
    there: Tensor


@dataclass(frozen=True, slots=True)
class Cache:
    """Keys and values of one layer in blocks of `engine.runtime.cache_groups.BLOCK` tokens.

    keys: [n_blocks, n_kv_heads, BLOCK, head_dim] f32, f16, or int8 with k_scales f16 [n_blocks, n_kv_heads, BLOCK, n_groups]
    (q8_0: a group of 32 values has a scale; int8: one group). values and v_scales: the same with v_dim. Latent rows: keys
    [n_blocks, 1, BLOCK, rank + n_rot], no values. The last block is scratch: padding rows store there.
    """

    keys: Tensor
    values: Tensor | None
    k_scales: Tensor | None
    v_scales: Tensor | None
    group: int = 0
    """Which of the step's block tables."""


@dataclass(frozen=True, slots=True)
class DeltaState:
    """State of one recurrent layer: inputs f32 [n_slots, n_taps - 1, channels], matrices f32 [n_slots, n_v_heads, dim, dim].

    matrices[slot, h, i, j]: key dimension i, value dimension j. The last slot is scratch.
    """

    inputs: Tensor
    matrices: Tensor


@dataclass(frozen=True, slots=True)
class StepInputs:
    """What varies from step to step, at addresses that stay: graphs are replayed over it.

    token_ids, positions, seq_of_row: int32 [n_rows]; block_tables: int32 [n_groups, n_seqs, n_blocks]; out_rows: int32 [n_out];
    states: int32 [n_seqs, 4], see `engine.runtime.step.StepBatch`, or None. Padding rows of a bucket have position 0 and a block
    table of the scratch block.
    """

    token_ids: Tensor
    positions: Tensor
    seq_of_row: Tensor
    block_tables: Tensor
    out_rows: Tensor
    states: Tensor | None = None
