"""Counts of experts as values: the hottest, a map to paint, and what is stored with a message."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.expert_use import ExpertUse
from engine.api.heat import LEVELS, heat_map, hottest
from engine.errors import InvalidRequest


def zipf(n_layers: int, n_experts: int, n_tokens: int, n_used: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    share = 1 / np.arange(1, n_experts + 1)
    return np.stack([rng.permutation(rng.multinomial(n_tokens * n_used, share / share.sum())) for _ in range(n_layers)])


def test_hottest_are_the_largest_counts_and_their_share() -> None:
    assert hottest([1, 9, 0, 9, 3], 3) == ((1, 3, 4), 21 / 22)
    assert hottest([2, 2, 2, 2], 2) == ((0, 1), 0.5)
    assert hottest([0] * 8, 2) == ((0, 1), 0.25)
    assert hottest([1, 2], 5) == ((0, 1), 1.0)


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=300), st.integers(0, 310))
def test_no_other_set_of_as_many_has_more(counts: list[int], n: int) -> None:
    experts, share = hottest(counts, n)
    assert len(set(experts)) == len(experts) == min(n, len(counts))
    best = sum(sorted(counts, reverse=True)[:n])
    assert share == pytest.approx(best / sum(counts) if sum(counts) else len(experts) / len(counts))


def test_a_map_tells_never_from_once_and_shows_the_hottest() -> None:
    levels = heat_map(np.array([[0, 1, 100], [0, 0, 0]], np.uint64))
    assert levels.dtype == np.uint8
    assert levels[0, 0] == 0 < levels[0, 1] < levels[0, 2] == LEVELS
    assert not levels[1].any()


def test_a_map_of_a_large_model_is_made_ten_times_a_second() -> None:
    counts = zipf(94, 128, 1000, 8).astype(np.uint64)
    heat_map(counts)
    started = time.perf_counter()
    for _ in range(10):
        heat_map(counts)
    assert time.perf_counter() - started < 0.1  # a tenth of the second that ten frames have


@pytest.mark.parametrize("scale", [1, 300, 70_000])
def test_stored_counts_come_back(scale: int) -> None:
    counts = zipf(3, 40, 50, 4) * scale
    use = ExpertUse.of((1, 4, 90), (50, 50, 1), counts)
    assert ExpertUse.from_bytes(use.to_bytes()) == use
    np.testing.assert_array_equal(use.counts(), counts)
    assert use.n_tokens == 50


def test_an_answer_of_a_large_model_takes_some_kilobytes() -> None:
    """About a byte an expert, where the counts as they are take four."""
    assert len(ExpertUse.of(tuple(range(94)), (700,) * 94, zipf(94, 128, 700, 8)).to_bytes()) < 14_000


def test_damaged_bytes_are_refused() -> None:
    good = ExpertUse.of((0, 1), (9, 9), zipf(2, 16, 9, 2)).to_bytes()
    for bad in (b"", good[:-3], b"XXXX" + good[4:], good[:4] + b"\xff\xff" + good[6:], good + b"x"):
        with pytest.raises(InvalidRequest, match="no counts of experts"):
            ExpertUse.from_bytes(bad)
