"""Filters keep what their definitions say, whatever the logits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sampling import filters


def some_logits(seed: int, n: int, ties: bool) -> filters.F32:
    logits = np.random.default_rng(seed).normal(size=n) * 3
    return (np.round(logits) if ties else logits).astype(np.float32)


vocabularies = st.builds(some_logits, st.integers(0, 2**31), st.integers(1, 3000), st.booleans())


@given(vocabularies, st.integers(1, 400))
@settings(max_examples=80, deadline=None)
def test_top_k_keeps_the_k_likeliest_in_order(logits: filters.F32, k: int) -> None:
    kept = filters.top_k(logits, k)
    expected = np.argsort(-logits, kind="stable")[:k]
    assert kept.ids.tolist() == expected.tolist()
    assert np.array_equal(kept.logits, logits[expected])


@given(vocabularies, st.floats(0.0, 1.0))
@settings(max_examples=80, deadline=None)
def test_top_p_is_the_shortest_prefix_that_reaches_p(logits: filters.F32, p: float) -> None:
    kept = filters.top_p(filters.top_k(logits, len(logits)), p)
    probs = np.sort(filters.probabilities(logits))[::-1]
    assert probs[: len(kept.ids)].sum() >= p - 1e-6 or len(kept.ids) == len(logits)
    assert len(kept.ids) == 1 or probs[: len(kept.ids) - 1].sum() < p + 1e-6


@given(vocabularies, st.floats(0.01, 0.999))
@settings(max_examples=80, deadline=None)
def test_nucleus_equals_top_p_over_everything(logits: filters.F32, p: float) -> None:
    whole = filters.top_p(filters.top_k(logits, len(logits)), p)
    # One token may differ where the sum lands on p within rounding.
    assert abs(len(filters.nucleus(logits, p).ids) - len(whole.ids)) <= 1


@given(vocabularies, st.floats(0.001, 1.0))
@settings(max_examples=80, deadline=None)
def test_min_p_keeps_tokens_relative_to_the_likeliest(logits: filters.F32, p: float) -> None:
    kept = filters.min_p(filters.top_k(logits, len(logits)), p)
    probs = filters.probabilities(logits)
    assert probs[kept.ids].min() >= p * probs.max() * (1 - 1e-4)
    assert kept.ids.tolist() == filters.above(logits, p).ids.tolist()


@pytest.mark.parametrize("p", [0.0, 1e-9])
def test_a_filter_never_keeps_nothing(p: float) -> None:
    assert len(filters.top_p(filters.top_k(np.zeros(5, np.float32), 5), p).ids) == 1
