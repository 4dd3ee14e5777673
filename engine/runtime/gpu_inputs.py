"""What varies from step to step, on its way to one GPU: one piece of int32 words, filled here and copied there at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.runtime.gpu_buffers import StepShape
from engine.runtime.step import StepBatch
from engine.triton_kernels.tensors import StepInputs

I32 = npt.NDArray[np.int32]

MAX_SEQS = 64
"""Sequences of one step; larger batches are run in parts."""


@dataclass(frozen=True, slots=True)
class InputLayout:
    """The largest step of a model: rows, sequences, cache groups, blocks of a sequence; scratch: what padding rows use.

    scratch_blocks: by cache group; scratch_slot: None where sequences have no state.
    """

    n_blocks: int
    scratch_blocks: tuple[int, ...]
    scratch_slot: int | None

    def parts(self, shape: StepShape) -> tuple[tuple[int, ...], ...]:
        """Shapes of token_ids, positions, seq_of_row, out_rows, block_tables and states, in the order they lie in."""
        rows, n_groups = (shape.n_rows,), max(1, len(self.scratch_blocks))
        tables, states = (n_groups, shape.n_seqs, self.n_blocks), (0 if self.scratch_slot is None else shape.n_seqs, 4)
        return rows, rows, rows, (shape.n_out,), tables, states

    def most_words(self, max_rows: Iterable[int]) -> int:
        """Words that any step takes of plans with so many rows."""
        shapes = [StepShape(rows, min(rows, MAX_SEQS), rows) for rows in max_rows]
        return max(self.n_words(shape) for shape in shapes)

    def n_words(self, shape: StepShape) -> int:
        """Words of all parts, each from a multiple of 16 bytes on."""
        return sum(_padded(part) for part in self.parts(shape))


class HostInputs:
    """The words of a step of one shape in the machine's memory."""

    def __init__(self, layout: InputLayout, shape: StepShape, words: I32) -> None:
        """words: at least n_words of them."""
        self.shape = shape
        self.words = words[: layout.n_words(shape)]
        self._layout = layout
        views = list(_views(self.words, layout.parts(shape)))
        self._ids, self._positions, self._seqs, self._out, self._tables, self._states = views

    def fill(self, batch: StepBatch, states: I32 | None) -> None:
        """Writes the batch; rows and sequences that it does not have become padding."""
        n, n_seqs, n_out = len(batch.token_ids), len(batch.block_tables), len(batch.out_rows)
        self._ids[:n], self._positions[:n], self._seqs[:n] = batch.token_ids, batch.positions, batch.seq_of_row
        if n < self.shape.n_rows:
            self._ids[n:], self._positions[n:] = 0, 0
            self._seqs[n:] = np.minimum(np.arange(n_seqs, n_seqs + self.shape.n_rows - n), self.shape.n_seqs - 1)
        self._out[:n_out], self._out[n_out:] = batch.out_rows, 0
        for i, table in enumerate(batch.block_tables):
            used = min(table.shape[-1], self._layout.n_blocks)
            # What a window has passed is -1: never read, but a kernel may form its address.
            self._tables[:, i, :used] = np.maximum(table[..., :used], 0)
            self._tables[:, i, used:] = 0
        for group, block in enumerate(self._layout.scratch_blocks if n_seqs < self.shape.n_seqs else ()):
            self._tables[group, n_seqs:] = block
        if self._layout.scratch_slot is not None:
            self._states[:] = (self._layout.scratch_slot, self._layout.scratch_slot, -1, 0)
            if states is not None:
                self._states[:n_seqs] = states


def device_inputs(layout: InputLayout, shape: StepShape, words: Tensor) -> StepInputs:
    """The parts of a step on the device. words: int32, at least n_words."""
    ids, positions, seqs, out, tables, states = _tensors(words, layout.parts(shape))
    return StepInputs(ids, positions, seqs, tables, out, states if layout.scratch_slot is not None else None)


def _views(words: I32, parts: tuple[tuple[int, ...], ...]) -> list[I32]:
    found, at = [], 0
    for part in parts:
        found.append(words[at : at + int(np.prod(part))].reshape(part))
        at += _padded(part)
    return found


def _tensors(words: Tensor, parts: tuple[tuple[int, ...], ...]) -> list[Tensor]:
    found, at = [], 0
    for part in parts:
        found.append(words[at : at + int(np.prod(part))].view(part))
        at += _padded(part)
    assert words.dtype == torch.int32
    return found


def _padded(part: tuple[int, ...]) -> int:
    return -(-int(np.prod(part)) // 4) * 4
