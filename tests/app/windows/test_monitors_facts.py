"""What the dashboard shows of what the model holds: the ledger's bytes, weights in the proportion of the placement."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from app.monitors.facts import Held
from app.windows.monitors_facts import held_by
from engine.api.pure import Gpu, Numa
from engine.api.values import HoldingInfo
from tests.helpers.fake_engine import model_info

MB = 1_000_000


@dataclass
class Planned:
    """What the planner says of a device."""

    device: Gpu | Numa = Gpu(0)  # noqa: RUF009  (a frozen value)
    attention: int = 100 * MB
    ffn: int = 100 * MB
    experts: int = 200 * MB
    kv: int = 50 * MB
    buffers: int = 10 * MB


def test_bytes_are_those_of_the_ledger() -> None:
    model = replace(
        model_info("/m.gguf"),
        holdings=(
            HoldingInfo("gpu0", "weights", 390 * MB),
            HoldingInfo("gpu0", "derived", 10 * MB),
            HoldingInfo("gpu0", "kv", 60 * MB),
            HoldingInfo("gpu0", "kept windows", 5 * MB),
            HoldingInfo("gpu0", "state", 3 * MB),
            HoldingInfo("gpu0", "workspace", 33 * MB),
            HoldingInfo("gpu1", "weights", 999 * MB),
        ),
    )
    found = held_by(model, Planned())  # type: ignore[arg-type]
    assert found == Held(100 * MB, 100 * MB, 200 * MB, 68 * MB, 33 * MB)
    double = replace(model, holdings=(HoldingInfo("gpu0", "weights", 800 * MB),))
    assert held_by(double, Planned()) == Held(200 * MB, 200 * MB, 400 * MB, 0, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", [Gpu(3), Numa(0)])
def test_where_the_ledger_has_nothing_the_plan_is_shown(device: Gpu | Numa) -> None:
    model = replace(model_info("/m.gguf"), holdings=())
    assert held_by(model, Planned(device)) == Held(100 * MB, 100 * MB, 200 * MB, 50 * MB, 10 * MB)  # type: ignore[arg-type]
