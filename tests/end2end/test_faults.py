"""Faults that are put into this machine are named first, within 15 s. Those of cards here; all of them, which want a machine that
does nothing else, with LAYERDECK_LONG=1."""

from __future__ import annotations

import os

import pytest

from tests.bench.faults import FAULTS, WITHIN_S, damaged_weight
from tests.helpers.models import included_model

QUICK = ("power brake", "card fell off the bus")
NAMES = tuple(FAULTS) if os.environ.get("LAYERDECK_LONG") and included_model() is not None else QUICK


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.expects_warnings
def test_a_fault_is_named_first(name: str) -> None:
    expected, run = FAULTS[name]
    named = run()
    assert (named.rule, named.seconds <= WITHIN_S) == (expected, True), named


@pytest.mark.expects_warnings
@pytest.mark.skipif(included_model() is None, reason="the included model is not installed")
def test_a_weight_that_is_no_number_is_named_with_the_next_reading() -> None:
    """Before anything else of this machine can have lasted long enough to be said."""
    named = damaged_weight(healthy_s=2.0)
    assert (named.rule, named.seconds <= 4.0) == ("R-NAN", True), named
