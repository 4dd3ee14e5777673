"""GPUs that write into each other's memory, and what is done where that is lost on the way."""

from __future__ import annotations

from typing import Any

import pytest

from engine.placement.placement import Gpu
from tests.helpers.golden_models import golden, greedy
from tests.helpers.placed import need_torch, open_placed, split


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")


def loses(sender: int, first: int) -> Any:
    """A copy from one device of which what comes from word `first` on is lost."""

    def carry(device: Any, sent: Any, came: Any) -> None:
        n = first if device.index == sender else len(sent)
        came[:n].copy_(sent[:n])

    return carry


def test_what_arrives_is_trusted() -> None:
    from engine.runtime.gpu import open_gpus
    from engine.runtime.gpu_peers import try_peers

    found = try_peers(open_gpus([0, 1]))
    assert not found.apart and not found.notes


@pytest.mark.expects_warnings
@pytest.mark.parametrize("sender", [0, 1])
@pytest.mark.parametrize("first", [0, 1 << 21, (1 << 22) - 1])
def test_a_copy_that_is_lost_sets_both_ways_apart(sender: int, first: int) -> None:
    from engine.runtime.gpu import open_gpus
    from engine.runtime.gpu_peers import by_engine, try_peers

    for ways in ((loses(sender, first), by_engine), (by_engine, loses(sender, first))):
        found = try_peers(open_gpus([0, 1]), ways)
        assert found.apart == {(Gpu(0), Gpu(1)), (Gpu(1), Gpu(0))}
        assert len(found.notes) == 1
        assert found.notes[0].startswith("gpu0 and gpu1 exchange through the memory of the machine")
        assert f"what gpu{sender} wrote into gpu{1 - sender} was not what arrived" in found.notes[0]


@pytest.mark.expects_warnings
def test_a_model_goes_around_a_lost_copy_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.runtime import gpu_peers

    monkeypatch.setattr(gpu_peers, "WAYS", (loses(1, 5),))
    model = open_placed(golden("qwen3").path, split)
    assert any("gpu0 and gpu1 exchange through the memory of the machine" in note for note in model.notes)
    assert greedy(model, golden("qwen3").ids("short"), 6) == golden("qwen3").greedy("short")[:6]
    model.close()
