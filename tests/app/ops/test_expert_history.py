"""Counts of several answers add up; what is damaged or of another model is left out."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from app.ops.expert_history import summed
from engine.api.expert_use import ExpertUse


def use(counts: list[list[int]], rows: int, layers: tuple[int, ...] = (1, 3)) -> bytes:
    return ExpertUse.of(layers, (rows,) * len(layers), np.array(counts)).to_bytes()


def test_answers_add_up(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL):
        found = summed([b"damaged", use([[3, 0], [1, 2]], 3), use([[70_000, 1], [0, 5]], 6), use([[9, 9]], 18, (1,))])
    assert found is not None and found.n_tokens == 9
    assert found.counts == {1: [70_003, 1], 3: [1, 7]}


def test_nothing_adds_up_to_nothing() -> None:
    assert summed([]) is None
    assert summed([use([[0, 0], [0, 0]], 0)]) is None
