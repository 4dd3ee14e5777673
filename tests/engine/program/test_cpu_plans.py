"""What other devices ask of a plan changes nothing for models that lie wholly on the CPU: same ops, same places, same bytes."""

from __future__ import annotations

import json

import pytest

from tests.helpers.cpu_plans import RECORD, cpu_plans
from tests.helpers.golden_models import MODELS


@pytest.mark.parametrize("name", MODELS)
def test_plans_of_the_cpu_are_those_recorded(name: str) -> None:
    recorded = json.loads(RECORD.read_text())
    for key, value in cpu_plans(name).items():
        assert recorded[key] == list(value), f"{key} changed; if that is meant, run `python -m tests.helpers.cpu_plans`"
