"""The sampler draws from the distribution that its params describe, and again the same from the same seed."""

from __future__ import annotations

import time

import numpy as np
import pytest

from engine.sampling.chain import Sampler
from engine.sampling.params import SamplingParams

PLAIN = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}


def logits_of(n: int, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return (np.random.default_rng(seed).normal(size=n) * 2).astype(np.float32)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_tempered_softmax(temperature: float) -> None:
    logits = logits_of(8)
    sampler = Sampler(SamplingParams(**{**PLAIN, "temperature": temperature}, seed=1))
    counts = np.bincount([sampler.sample(logits, ()) for _ in range(8000)], minlength=8) / 8000
    expected = np.exp(logits / temperature) / np.exp(logits / temperature).sum()
    assert np.abs(counts - expected).max() < 0.02


def test_top_k_draws_follow_the_renormalised_head() -> None:
    logits = logits_of(300)
    sampler = Sampler(SamplingParams(**{**PLAIN, "top_k": 3}, seed=1))
    counts = np.bincount([sampler.sample(logits, ()) for _ in range(6000)], minlength=300) / 6000
    head = np.argsort(-logits)[:3]
    expected = np.exp(logits[head]) / np.exp(logits[head]).sum()
    assert np.abs(counts[head] - expected).max() < 0.025
    assert counts[head].sum() == pytest.approx(1.0)


def test_zero_temperature_is_greedy() -> None:
    logits = logits_of(1000)
    assert Sampler(SamplingParams(temperature=0.0)).sample(logits, ()) == int(logits.argmax())


def test_one_seed_draws_one_answer() -> None:
    params = SamplingParams(temperature=1.5, seed=42)
    first, second = Sampler(params), Sampler(params)
    many = [logits_of(500, seed) for seed in range(50)]
    assert [first.sample(x, ()) for x in many] == [second.sample(x, ()) for x in many]
    assert Sampler(SamplingParams()).seed != Sampler(SamplingParams()).seed


def test_penalties_look_only_at_the_window() -> None:
    logits = np.array([5.0, 4.0, 0.0], np.float32)
    history = [0, 2, 2, 2]
    near = SamplingParams(temperature=0.0, presence_penalty=2.0, penalty_window=2)
    far = SamplingParams(temperature=0.0, presence_penalty=2.0, penalty_window=-1)
    assert Sampler(near).sample(logits, history) == 0
    assert Sampler(far).sample(logits, history) == 1


def test_a_large_vocabulary_costs_less_than_a_millisecond() -> None:
    logits = logits_of(152_064)
    sampler = Sampler(SamplingParams())
    times = []
    for _ in range(30):
        start = time.perf_counter()
        sampler.sample(logits, ())
        times.append(time.perf_counter() - start)
    assert min(times) < 1e-3
