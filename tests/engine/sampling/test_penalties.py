"""Penalties touch only what was said, by the amounts they state."""

from __future__ import annotations

import numpy as np

from engine.sampling.penalties import penalise


def test_neutral_penalties_return_the_input() -> None:
    logits = np.ones(4, np.float32)
    assert penalise(logits, [1, 2]) is logits
    assert penalise(logits, [], repetition=2.0) is logits


def test_repetition_divides_positive_and_multiplies_negative_logits() -> None:
    out = penalise(np.array([2.0, -2.0, 3.0], np.float32), [0, 1, 1], repetition=2.0)
    assert out.tolist() == [1.0, -4.0, 3.0]


def test_presence_counts_once_and_frequency_each_time() -> None:
    logits = np.array([1.0, 1.0, 1.0], np.float32)
    assert penalise(logits, [0, 0, 1], presence=0.5).tolist() == [0.5, 0.5, 1.0]
    assert penalise(logits, [0, 0, 1], frequency=0.5).tolist() == [0.0, 0.5, 1.0]
    assert logits.tolist() == [1.0, 1.0, 1.0]
