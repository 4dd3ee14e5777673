"""Promotion on generated traces: as good as an ideal LRU where text has a memory, off where it has none."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.runtime.promotion import Promotion
from engine.runtime.trial import Trial
from tests.helpers.traces import Trace, drifting, lru_hits, steady, uniform


def run(trace: Trace, n_slots: int, n_experts: int = 512, most: int = 1 << 30) -> tuple[float, float, Promotion]:
    """(share of hits, moves a token, the policy), as the engine does it: what is moved in a step is there after it."""
    policy = Promotion(n_experts, [range(n_slots)])
    hits = moves = 0
    for ids in trace[:, None, :]:
        hits += int(policy.hits(ids).sum())
        policy.arrived()
        policy.saw(ids)
        if policy.worth.pays:
            moves += len(policy.plan(most))
    return hits / trace.size, moves / len(trace), policy


@pytest.fixture(scope="module")
def text() -> Trace:
    return drifting(3000)


def test_the_trace_has_the_published_statistics(text: Trace) -> None:
    half = len(text) // 2
    hottest = np.argsort(-np.bincount(text[:half].reshape(-1), minlength=512))[:32]
    assert lru_hits(text, 64) == pytest.approx(0.67, abs=0.015)
    assert lru_hits(text, 128) == pytest.approx(0.81, abs=0.015)
    assert np.isin(text[half:], hottest).mean() == pytest.approx(0.10, abs=0.02)


@pytest.mark.parametrize("n_slots", [32, 64, 128])
def test_hits_are_within_five_points_of_an_ideal_lru(text: Trace, n_slots: int) -> None:
    """Though an expert comes a token late, and with fewer moves than an LRU makes."""
    hits, moves, policy = run(text, n_slots)
    ideal = lru_hits(text, n_slots)
    assert hits > ideal - 0.05
    assert moves < {32: 0.5, 64: 0.55, 128: 0.85}[n_slots] * 10 * (1 - ideal)
    assert policy.worth.pays


@pytest.mark.parametrize("seed", range(4))
def test_it_switches_itself_off_where_nothing_comes_back(seed: int) -> None:
    hits, _, policy = run(uniform(500, seed=seed), 64)
    assert not policy.worth.pays
    assert "switched off" in policy.worth.why
    assert hits == pytest.approx(64 / 512, abs=0.03)


def test_lasting_likes_are_found_and_then_left_alone() -> None:
    trace = steady(2000)
    hottest = np.argsort(-np.bincount(trace.reshape(-1), minlength=512))[:64]
    hits, moves, policy = run(trace, 64)
    assert hits > np.isin(trace, hottest).mean() - 0.08
    assert policy.worth.pays or moves < 2


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 6), st.booleans())
def test_slots_hold_one_expert_each_and_know_it(seed: int, n_slots: int, most: int, fails: bool) -> None:
    rng = np.random.default_rng(seed)
    policy = Promotion(12, [rng.permutation(12)[:n_slots].tolist(), [3]])
    for _ in range(60):
        ids = np.stack([rng.permutation(12)[:3], rng.permutation(12)[:3]])
        ids[1, 2] = -1
        if fails and rng.random() < 0.2:
            policy.lost()
        policy.arrived()
        for layer, slots in enumerate((n_slots, 1)):
            there = np.flatnonzero(policy.slot_of[layer] >= 0)
            taken = policy.slot_of[layer][there].tolist()
            assert len(set(taken)) == len(taken) and all(slot < slots for slot in taken)
        policy.saw(ids)
        moves = policy.plan(most)
        for layer, slots in enumerate((n_slots, 1)):
            held = policy.experts(layer)
            assert len(set(held)) == len(held) <= slots
        assert len(moves) <= most
        for move in moves:
            assert policy.slot_of[move.layer, move.expert] < 0  # not before it has come
            assert move.victim < 0 or policy.slot_of[move.layer, move.victim] < 0


def test_a_token_of_a_large_model_is_thought_about_in_little_time() -> None:

    rng = np.random.default_rng(0)
    policy = Promotion(128, [range(32)] * 94)
    tokens = [np.stack([rng.permutation(128)[:8] for _ in range(94)]) for _ in range(20)]
    started = time.process_time()
    for ids in tokens * 5:
        policy.arrived()
        policy.saw(ids)
        policy.plan(16)
    assert time.process_time() - started < 100 * 1.5e-3


def test_a_trial_finds_a_gain_and_says_how_sure_it_is() -> None:
    rng = np.random.default_rng(1)
    trial, order = Trial(16, 10), []
    while not trial.done:
        order.append(trial.on)
        trial.add(1, float((0.010 if trial.on else 0.011) * (1 + 0.05 * rng.normal())))
    found = trial.result()
    assert order[:64] == [True] * 16 + [False] * 32 + [True] * 16
    assert (found.n_pairs, len(order)) == (10, 20 * 16)
    assert abs(found.gain - 0.1) < 4 * found.sigma < 0.2
    assert found.with_tok_s == pytest.approx(100, rel=0.05) and found.without_tok_s == pytest.approx(91, rel=0.05)


def test_a_trial_without_a_difference_is_not_sure_of_one() -> None:
    rng = np.random.default_rng(2)
    trial = Trial(8, 12)
    while not trial.done:
        trial.add(1, 0.01 * (1 + 0.1 * rng.random()))
    found = trial.result()
    assert abs(found.gain) < 3 * found.sigma and not math.isinf(found.sigma)
