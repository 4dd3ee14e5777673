"""Bytes of single units, summed up once, against the full arithmetic."""

from __future__ import annotations

import random

import pytest

from engine.estimate.memory import Estimator
from engine.estimate.sums import UnitSums
from tests.engine.estimate.test_quick import BOX, OPTIONS, scattered
from tests.helpers.described import model
from tests.helpers.golden_models import MODELS


@pytest.mark.parametrize("name", MODELS)
def test_units_take_what_the_full_arithmetic_says(name: str) -> None:
    one, rng = model(name), random.Random(name)
    full = Estimator(one.spec, one.graph, one.file.tensors, OPTIONS, BOX)
    sums = UnitSums(one.spec, full)
    for _ in range(5):
        placement = scattered(one, rng)
        assert sums.by_unit(placement) == full.unit_bytes(placement)
