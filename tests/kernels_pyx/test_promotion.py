"""Scores and wishes against numpy, with gaps in tables, equal scores and empty slots."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_pyx.promotion import saw, wishes

I64 = npt.NDArray[np.int64]


def expected_wishes(
    missed: I64, scores: npt.NDArray[np.float64], held: I64, free: I64, margin: float, most: int
) -> list[tuple[float, int, int, int]]:
    rows = np.arange(len(missed))[:, None]
    high = np.where(missed >= 0, scores[rows, np.maximum(missed, 0)], -np.inf)
    low = np.where(free > 0, np.where(held >= 0, scores[rows, np.maximum(held, 0)], -1.0), np.inf)
    found = []
    for _ in range(most):
        for layer in range(len(missed)):
            best, worst = int(high[layer].argmax()), int(low[layer].argmin())
            gain = high[layer, best] - margin * low[layer, worst]
            if np.isfinite(gain) and gain > 0:
                found.append((float(gain), layer, int(missed[layer, best]), worst))
            high[layer, best], low[layer, worst] = -np.inf, np.inf
    return sorted(found)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 5), st.integers(1, 6), st.integers(1, 9), st.integers(0, 3))
def test_tokens_and_wishes_are_those_of_numpy(seed: int, n: int, used: int, width: int, most: int) -> None:
    rng, n_experts = np.random.default_rng(seed), 12
    ids = np.stack([rng.permutation(n_experts)[:used] for _ in range(n)])
    ids[rng.random(ids.shape) < 0.2] = -1
    slot_of, still = (rng.integers(-1, 2, (n, n_experts)).astype(np.int32) for _ in range(2))
    scores = rng.integers(0, 4, (n, n_experts)).astype(np.float64)
    missed, hits, added = np.zeros_like(ids), np.zeros(n, np.int64), scores.copy()
    rows, there = np.arange(n)[:, None], ids >= 0
    found = saw(ids, slot_of, still, added, 2.5, missed, hits)
    hit = (slot_of[rows, np.maximum(ids, 0)] >= 0) & there
    np.testing.assert_array_equal(missed, np.where(hit, -1, ids))
    np.testing.assert_array_equal(hits, hit.sum(axis=1))
    assert found == (hit.sum(), ((still[rows, np.maximum(ids, 0)] >= 0) & there).sum())
    np.add.at(scores, (np.broadcast_to(rows, ids.shape)[there], ids[there]), 2.5)
    np.testing.assert_array_equal(added, scores)
    held = np.stack([rng.permutation(n_experts)[:width] for _ in range(n)])
    held[rng.random(held.shape) < 0.2] = -1
    free = (rng.random(held.shape) < 0.8).astype(np.uint8)
    assert sorted(wishes(missed, scores, held, free, 2.0, most)) == expected_wishes(missed, scores, held, free, 2.0, most)


def test_what_does_not_belong_together_is_refused() -> None:
    ids, tables, scores = np.zeros((2, 3), np.int64), np.zeros((2, 4), np.int32), np.zeros((2, 4))
    missed, hits = np.zeros((2, 3), np.int64), np.zeros(2, np.int64)
    with pytest.raises(IndexError, match="expert 4 of 4"):
        saw(ids + 4, tables, tables, scores, 1.0, missed, hits)
    with pytest.raises(ValueError, match="layers"):
        saw(ids, tables[:1], tables, scores, 1.0, missed, hits)
    with pytest.raises(ValueError, match="widths"):
        saw(ids, tables[:, :3].copy(), tables, scores, 1.0, missed, hits)
    free = np.ones((2, 5), np.uint8)
    with pytest.raises(ValueError, match="belong"):
        wishes(missed, scores, np.zeros((2, 4), np.int64), free, 1.0, 2)
    with pytest.raises(ValueError, match="belong"):
        wishes(missed, scores, np.zeros((2, 5), np.int64), free, 1.0, 9)
    assert not scores.any()
