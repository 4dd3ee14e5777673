"""Beside a running placement one layer of each kind runs before a capture, and all of them where that was not enough."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest

from engine.runtime.driver import DRIVER
from engine.runtime.garbage import keep_imports_out
from engine.triton_kernels import compiling
from engine.triton_kernels.compiling import NotCompiled, nothing_compiled
from tests.helpers.golden_models import golden
from tests.helpers.moves import target
from tests.helpers.placed import hybrid, need_torch, open_placed, whole


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lanes that are captured while an emulated GPU is said to be a real one: (operations, whether only kinds had run)."""
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:1")
    from engine.runtime import gpu_executor, gpu_warmup  # the first has its own name for what is changed here
    from engine.runtime.gpu_lane import GpuLane

    found: list[tuple[int, bool]] = []
    state: dict[str, Any] = {"captures": found, "refuses": False, "ran": []}

    def capture(self: Any, first: int, end: int, *, known: bool = False) -> None:
        if known and state["refuses"]:
            raise NotCompiled
        found.append((end - first, known))

    usual = GpuLane.run

    def run(self: Any, first: int, end: int) -> None:
        state["ran"].append(end - first)
        usual(self, first, end)

    assert gpu_executor.needs_warmth is gpu_warmup.needs_warmth
    monkeypatch.setattr(gpu_warmup, "needs_warmth", lambda sides: True)
    monkeypatch.setattr(GpuLane, "capture", capture)
    monkeypatch.setattr(GpuLane, "run", run)
    return state


@pytest.mark.parametrize("refuses", [False, True])
def test_a_move_runs_one_layer_of_each_kind(captured: dict[str, Any], refuses: bool) -> None:
    model = open_placed(golden("qwen3moe").path, whole)
    assert captured["captures"] and not any(known for _, known in captured["captures"])
    captured["captures"].clear()
    captured["ran"].clear()
    captured["refuses"] = refuses
    model.move(target(model, lambda unit, spec: hybrid(unit, spec) if unit.layer == 0 else whole(unit, spec)))
    decodes = [known for _, known in captured["captures"]]
    assert decodes and set(decodes) == {not refuses}
    assert bool(captured["ran"]) == refuses
    model.close()


def test_of_layers_that_are_alike_one_runs() -> None:
    need_torch()
    import torch

    from engine.arch.units import UnitId
    from engine.runtime.gpu import GpuDevice
    from engine.runtime.gpu_bind import Call
    from engine.runtime.gpu_lane import GpuLane, GpuStream

    ran: list[str] = []

    def call(kind: str, layer: int, op: str, form: Hashable) -> Call:
        unit = UnitId(kind, layer)  # type: ignore[arg-type]
        name = f"{unit} {op}"
        return Call(name, unit, lambda: ran.append(name), (), form)

    calls = [call(kind, layer, op, form) for layer in range(3) for kind, op, form in ROW]
    calls += [call(*ROW[0][:1], 3, *ROW[0][1:]), call("ffn", 3, "linear", "Q6_K")]
    device = GpuDevice(0, "", torch.device("cpu"), 1 << 30, emulated=True)
    lane = GpuLane(GpuStream(device), tuple(calls), 0, len(calls))
    known: set[Hashable] = set()
    lane.run_layers(0, len(calls), lane.new_layers(known))
    assert ran == ["mixer.0 linear", "mixer.0 linear", "ffn.0 linear", "mixer.3 linear", "ffn.3 linear"]
    assert lane.new_layers(known) == {-1}


ROW = (("mixer", "linear", "Q4_K"), ("mixer", "linear", "Q4_K"), ("ffn", "linear", "Q4_K"))


def test_who_captures_compiles_nothing() -> None:
    assert compiling._begins(key="") is False
    with nothing_compiled(), pytest.raises(NotCompiled):
        compiling._begins(key="")
    assert compiling._begins(key="") is False


def test_nobody_has_the_driver_while_a_kernel_is_compiled() -> None:
    with DRIVER:
        compiling._begins(key="")
        assert not DRIVER.is_mine
        compiling._ended(key="")
        assert DRIVER.is_mine
    assert not DRIVER.is_mine
    compiling._begins(key="")
    compiling._ended(key="")
    assert not DRIVER.is_mine  # who did not have it gets it by no compilation


def test_triton_tells_when_it_compiles() -> None:
    knobs = pytest.importorskip("triton").knobs
    compiling.listen()
    assert knobs.runtime.jit_cache_hook is compiling._begins
    assert knobs.runtime.jit_post_compile_hook is compiling._ended


def test_what_was_imported_is_searched_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.runtime import garbage

    times: list[int] = []
    monkeypatch.setattr(garbage, "_done", False)
    monkeypatch.setattr(garbage.gc, "freeze", lambda: times.append(1))
    keep_imports_out()
    keep_imports_out()
    assert times == [1]
