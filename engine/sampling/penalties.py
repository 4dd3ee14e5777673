"""Penalties on tokens that were said before: pure functions on logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]


def penalise(logits: F32, recent: Sequence[int], repetition: float = 1.0, presence: float = 0.0, frequency: float = 0.0) -> F32:
    """logits [n_vocab] with the tokens of `recent` made less likely (a copy; the input when nothing applies).

    repetition divides positive and multiplies negative logits (https://arxiv.org/abs/1909.05858, section 4.1); then `presence` is
    subtracted once and `frequency` once for every occurrence.
    """
    if not recent or (repetition == 1.0 and presence == 0.0 and frequency == 0.0):
        return logits
    all_counts = np.bincount(np.asarray(recent, np.int64))
    ids = np.flatnonzero(all_counts)
    counts = all_counts[ids]
    out = logits.copy()
    seen = out[ids]
    seen = np.where(seen > 0, seen / np.float32(repetition), seen * np.float32(repetition))
    out[ids] = seen - np.float32(presence) - np.float32(frequency) * counts.astype(np.float32)
    return out
