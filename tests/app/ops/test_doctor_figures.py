"""Figures for questions about symptoms, from events that pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytestqt.qtbot import QtBot

from app.bridge.engine_bridge import EngineBridge
from app.ops.doctor_context import model_facts
from app.ops.doctor_figures import DoctorFigures
from engine.api.commands import Generate, LoadModel
from engine.api.values import DeviceShare, HoldingInfo
from tests.helpers.fake_engine import FakeEngine, Prefill, Tokens, model_info


def test_figures_of_answers_and_of_the_model(qtbot: QtBot) -> None:
    engine = FakeEngine(answer=(Prefill(total=32), Tokens(("a", "b"))))
    bridge = EngineBridge(engine)
    figures = DoctorFigures(bridge)
    assert figures.figures() == {} and figures.snapshot is None
    bridge.submit(LoadModel(bridge.new_id(), "/m.gguf"))
    qtbot.waitUntil(lambda: bridge.state.kind == "ready")
    assert "answers" not in figures.figures()
    for n in (1, 2):
        bridge.submit(Generate(bridge.new_id(), prompt="x"))
        qtbot.waitUntil(lambda n=n: figures.figures().get("answers") == n)  # type: ignore[misc]
    assert figures.figures()["prompt_tokens"] >= 1
    assert 0 < figures.figures()["context_percent"] < 10
    bridge.submit(LoadModel(bridge.new_id(), "/m.gguf"))
    qtbot.waitUntil(lambda: "answers" not in figures.figures())
    bridge.close()


def test_a_model_as_the_checks_see_it() -> None:
    shares = (DeviceShare("numa0", "", 3), DeviceShare("numa1", "", 4), DeviceShare("gpu0", "RTX", 90))
    model = replace(model_info("/m.gguf"), devices=shares, holdings=(HoldingInfo("numa0", "weights", 3, mapped=True),))
    facts = model_facts(model)
    assert (facts.path, facts.cpu_bytes, facts.mapped, facts.n_workers) == (Path("/m.gguf"), 7, True, 0)
