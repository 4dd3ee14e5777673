"""Kinds of steps that were not needed at load are made ready one by one while nobody asks, each once, whatever becomes of it."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import OutOfDeviceMemory
from engine.runtime import gpu_warmup, loaded_model
from engine.runtime.loaded_model import LoadedModel
from tests.helpers.golden_models import batch, golden
from tests.helpers.placed import need_torch, open_placed, whole


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    """On an emulated GPU that is said to be a real one once the model is loaded."""
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:1")
    made = open_placed(golden("qwen3").path, whole)
    yield made
    made.close()


def pretend(monkeypatch: pytest.MonkeyPatch, model: LoadedModel, *, full: bool = False) -> list[int]:
    """Sequences of the steps that are made ready from now on; full: there is no room for them."""
    rows: list[int] = []

    def make_ready(self: Any, index: int, bound: Any) -> None:
        rows.append(bound.shape.n_rows)
        if full:
            raise OutOfDeviceMemory("a kernel", "gpu0", 1 << 30, 1 << 20)
        bound.ready = True

    monkeypatch.setattr(gpu_warmup, "needs_warmth", lambda sides: True)
    monkeypatch.setattr(gpu_warmup.Warmer, "make_ready", make_ready)
    return rows


@pytest.mark.parametrize("full", [False, True])
def test_each_kind_is_made_ready_once(monkeypatch: pytest.MonkeyPatch, model: LoadedModel, full: bool) -> None:
    executor: Any = model.executor
    assert model.warm_in_s is None  # nothing is compiled for an emulated one
    rows = pretend(monkeypatch, model, full=full)
    monkeypatch.setattr(loaded_model, "IDLE_S", 0.0)
    while model.warm_in_s is not None and len(rows) < 20:
        model.settle()
    buckets = [plan.max_rows for plan in executor.plans if plan.phase == "decode"]
    assert rows == buckets
    assert full or len(model.step(batch(golden("qwen3").ids("short")[:1]))) == 1


def test_who_has_just_asked_is_not_made_to_wait(monkeypatch: pytest.MonkeyPatch, model: LoadedModel) -> None:
    rows = pretend(monkeypatch, model)
    model.step(batch(golden("qwen3").ids("short")[:1]))
    there = len(rows)
    assert model.warm_in_s is not None and 0 < model.warm_in_s <= loaded_model.IDLE_S
    model.settle()
    assert len(rows) == there
