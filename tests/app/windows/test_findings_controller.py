"""What limits the machine, said on other pages: the doctor's questions are answered by it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.shots import monitors_machine as machine
from app.windows.findings_controller import FindingsController
from engine.api.commands import WatchSensors
from tests.app.windows.conftest import Stage

pytestmark = pytest.mark.usefixtures("themed")


def test_a_finding_answers_the_question_about_its_symptom(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.ops.doctor_ops._engine_checks", tuple)
    window = stage.window
    window.show_page("doctor")
    controller = window.doctor.controller()
    controller.show_symptom("crash")
    assert controller.evidence().findings == {} and controller.symptoms.walk().steps == ()
    stage.load()
    window.show_page("doctor")
    reading = machine.snapshot(1.0, machine.topology())
    lost = replace(reading.gpus[0], state="lost", problem="It fell off the bus.")
    stage.parts.monitors.read.emit(replace(reading, gpus=(lost, *reading.gpus[1:])))
    findings = window.findChild(FindingsController)
    assert findings is not None and list(findings.said()) == ["R-LOST"]
    (step,) = controller.symptoms.walk().steps
    assert step.answer.key == "gpu" and "stopped answering" in step.because
    assert controller.page.symptoms.cause is not None  # without anybody asking for it


def test_sensors_are_read_while_the_page_of_the_doctor_is_shown(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.ops.doctor_ops._engine_checks", tuple)
    stage.parts.settings.set("chat.side_panel", False)
    window, engine = stage.window, stage.engine
    window.show_page("doctor")
    stage.qtbot.waitUntil(lambda: any(one.period_s == 1.0 for one in engine.sent(WatchSensors)))  # type: ignore[union-attr]
    window.show_chat()
    stage.qtbot.waitUntil(lambda: engine.sent(WatchSensors)[-1].period_s == 0)  # type: ignore[union-attr]
