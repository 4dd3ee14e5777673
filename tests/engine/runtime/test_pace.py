"""Work beside steps rests when steps have become too slow on average, and not for one that was unlucky."""

from __future__ import annotations

import pytest

from engine.runtime import pace
from engine.runtime.pace import Pace


def rests(monkeypatch: pytest.MonkeyPatch, steps: list[float]) -> float:
    """How long a piece of a second makes its thread rest, after steps that took 10 ms without the work."""
    slept = [0.0]
    monkeypatch.setattr(pace.time, "sleep", slept.append)
    monkeypatch.setattr(pace, "REST_S", 100.0)
    found = Pace(0.01)
    for seconds in steps:
        found.stepped(seconds)
    found.pause(1.0)
    return slept[-1]


def test_steps_a_little_slower_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rests(monkeypatch, [0.0125] * 50) == 0.0


def test_one_slow_step_among_many_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rests(monkeypatch, [0.01] * 30 + [0.05] + [0.01] * 5) == 0.0


def test_slow_steps_make_it_rest_longer_and_longer_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = rests(monkeypatch, [0.02] * 2), rests(monkeypatch, [0.02] * 10)
    assert 0 < few < many <= pace.MOST_REST
    assert rests(monkeypatch, [0.02] * 100) == pace.MOST_REST
    assert rests(monkeypatch, [0.02] * 10 + [0.01] * 60) == 0.0
