"""The golden models that we recorded ourselves come from the transformers library, and it still computes what was recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.golden_models import TRANSFORMERS, batch, golden
from tests.helpers.hf_models import MODELS, NAMES, Tiny, oracle, write
from tests.helpers.runs import EXACT, open_model


@pytest.fixture(params=MODELS, ids=NAMES)
def tiny(request: pytest.FixtureRequest) -> Tiny:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    one: Tiny = request.param
    if not hasattr(transformers, one.model):
        pytest.skip(f"this version of transformers has no {one.model}")
    return one


def test_all_of_them_are_golden_models() -> None:
    assert NAMES == TRANSFORMERS


def test_the_recorded_file_is_the_model(tiny: Tiny, tmp_path: Path) -> None:
    assert write(tiny, tmp_path).read_bytes() == golden(tiny.architecture).path.read_bytes()


def test_recorded_and_computed_logits_are_the_oracles(tiny: Tiny) -> None:
    recorded = golden(tiny.architecture)
    ids = recorded.ids("medium")
    expected = oracle(tiny)(ids)
    assert np.abs(expected - recorded.logits("medium")).max() < 1e-4
    model = open_model(recorded.path, EXACT)
    assert np.abs(model.step(batch(ids)) - expected).max() < 2e-3
    model.close()
