"""Figures for questions about symptoms, from events that pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytestqt.qtbot import QtBot

from app.bridge.engine_bridge import EngineBridge
from app.ops.doctor_context import Known, model_facts
from app.ops.doctor_figures import DoctorFigures
from app.shots import monitors_machine as machine
from engine.advice.doctor.check import Check, CheckResult
from engine.advice.doctor.context import Context
from engine.advice.doctor.gpu import free_memory
from engine.advice.doctor.numa import lopsided
from engine.advice.doctor.numa import policy as denied
from engine.advice.doctor.table import run_checks
from engine.api.commands import Generate, LoadModel, UnloadModel
from engine.api.events import Counters, Holdings
from engine.api.values import DeviceShare, HoldingInfo, RequestId
from engine.hardware.work import DeviceWork
from tests.helpers.fake_engine import FakeEngine, Prefill, Tokens, model_info

GB = 10**9


def test_figures_of_answers_and_of_the_model(qtbot: QtBot) -> None:
    engine = FakeEngine(answer=(Prefill(total=32), Tokens(("a", "b"))))
    bridge = EngineBridge(engine)
    figures = DoctorFigures(bridge)
    assert figures.figures() == {} and figures.known == Known()
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
    facts = model_facts(model, Known())
    assert (facts.path, facts.cpu_bytes, facts.mapped, facts.n_workers) == (Path("/m.gguf"), 7, True, 0)
    assert (facts.node_bytes, facts.gpu_bytes, facts.placed, facts.node_policy) == (((0, 3), (1, 4)), (), None, "")


def test_where_the_model_lies_speaks_in_the_checks() -> None:
    built = machine.topology()
    reading = machine.snapshot(1.0, built)
    gpu = replace(reading.gpus[0], memory_total_bytes=24 * GB, memory_used_bytes=22 * GB, memory_free_bytes=2 * GB)
    shares = (DeviceShare("numa0", "", 30 * GB), DeviceShare("numa1", "", 30 * GB), DeviceShare("gpu0", "RTX", 21 * GB))
    model = replace(model_info("/m.gguf"), devices=shares)
    held = Holdings(RequestId("1"), (), (), 0.4, ((0, 90), (1, 10)), "first touch", "The system refuses mbind(2).")

    def said(check: Check, known: Known) -> CheckResult:
        (found,) = run_checks(Context(machine=built, snapshot=known.snapshot, model=model_facts(model, known)), (check,))
        return found

    alone = replace(reading, gpus=(gpu,))
    known = Known(alone, held, {"gpu0": gpu.key})
    lie, policy, cards = lopsided, denied, free_memory
    assert "60 % of the weights lie on the node that was wanted" in said(lie, known).why
    assert said(policy, known).status == "warn" and "refuses mbind(2)" in said(policy, known).why
    assert said(cards, known).status == "pass"  # what fills the card is ours
    assert said(cards, Known(alone)).status == "warn"
    assert said(lie, Known(alone)).status == "unknown"


def test_it_asks_where_the_model_lies_and_learns_the_keys_of_cards(qtbot: QtBot) -> None:
    engine = FakeEngine()
    engine.holdings = (HoldingInfo("numa0", "weights", 3),)
    bridge = EngineBridge(engine)
    figures = DoctorFigures(bridge)
    bridge.submit(LoadModel(bridge.new_id(), "/m.gguf"))
    qtbot.waitUntil(lambda: figures.known.held is not None)
    bridge.happened.emit(
        Counters(RequestId("9"), replace(machine.sample(1.0), devices=(DeviceWork("gpu1", 50.0, card="GPU-7"),)))
    )
    assert figures.known.cards == {"gpu1": "GPU-7"}
    bridge.submit(UnloadModel(bridge.new_id()))
    qtbot.waitUntil(lambda: figures.known == Known())
    bridge.close()
