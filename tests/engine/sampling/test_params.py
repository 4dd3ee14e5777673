"""Params refuse what lies outside their ranges, in a sentence that names them."""

from __future__ import annotations

import pytest

from engine.errors import InvalidRequest
from engine.sampling.params import RANGES, SamplingParams


@pytest.mark.parametrize("name", sorted(RANGES))
def test_the_ends_of_each_range(name: str) -> None:
    low, high = RANGES[name]
    for value in (low, high):
        SamplingParams(**{name: value})  # type: ignore[arg-type]
    for value in (low - 1, high + 1, float("nan")):
        with pytest.raises(InvalidRequest, match=f"{name} is"):
            SamplingParams(**{name: value})  # type: ignore[arg-type]


def test_an_empty_stop_string() -> None:
    with pytest.raises(InvalidRequest, match="stop string"):
        SamplingParams(stop=("ok", ""))
