"""A finding's button opens what it proposes in the placement editor, and undo there brings back what was."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Literal

import pytest

from app.shots.model_header import write_header
from app.telemetry.shown import Replayed
from app.windows.findings_controller import FindingsController
from app.windows.placement_parts import make_placement
from app.windows.workers_window import WorkersWindow
from engine.advice.diagnosis.finding import Action, Finding, Gain
from engine.api.commands import ApplyPlacement, PinWorkers
from engine.api.pure import Gpu, Placement, machine_of
from tests.app.windows.conftest import Stage
from tests.helpers.fake_engine import model_info
from tests.helpers.placement_bench import MACHINE, SHAPE

pytestmark = pytest.mark.usefixtures("themed")


def placed(stage: Stage, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Placement]:
    """A model that is loaded as the editor plans it, on a machine with cards."""
    file, path = folder / "machine.json", folder / "small.gguf"
    file.write_text(json.dumps(MACHINE))
    write_header(path, SHAPE)
    monkeypatch.setattr(make_placement, "__defaults__", (lambda: machine_of(str(file)),))
    controller = stage.window.placement.controller()
    controller.open(str(path))
    desk = controller.desk
    stage.qtbot.waitUntil(lambda: desk.state in ("ready", "does not fit") and desk.outline is not None, timeout=30_000)
    loaded = desk.placement
    assert loaded is not None
    stage.engine.describe = lambda path: replace(model_info(path), placement=loaded)
    stage.load(str(path))
    stage.qtbot.waitUntil(lambda: findings_of(stage).ops is not None)
    return str(path), loaded


def findings_of(stage: Stage) -> FindingsController:
    return next(one for one in stage.window.children() if isinstance(one, FindingsController))


def test_a_proposal_opens_in_the_editor_and_undo_brings_back_what_was(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, loaded = placed(stage, tmp_path, monkeypatch)
    unit, where = next((unit, where) for unit, where in loaded.units if unit.kind in ("experts", "ffn"))
    there = Gpu(1) if where != Gpu(1) else Gpu(0)
    proposed = replace(loaded, units=tuple((one, there if one == unit else at) for one, at in loaded.units))
    gain = Gain(20.0, 1.0, proposed, "Move 1 more layer's experts to GPU 1 (18.0 GB free)", 1, there, 10**9)
    finding = Finding("R-CPU-BW", "capacity", "Limited.", "why", Action("relieve", "Move layers to a GPU", "numa0"), gain)
    controller = findings_of(stage)
    stage.window.show_page("monitors")
    assert controller.ops is not None and controller.strip is not None
    controller.strip.show_findings((finding,))
    controller.strip.row(0).button.click()
    editor = stage.window.placement.controller()
    desk = editor.desk
    stage.qtbot.waitUntil(lambda: desk.placement == proposed, timeout=30_000)
    assert desk.path == path
    assert desk.undo_text == gain.text
    assert stage.window._door() is stage.window.placement
    # Looked at, nothing more: the engine was told nothing, and one step back all is as it was.
    assert not [one for one in stage.engine.commands if isinstance(one, ApplyPlacement)]
    editor.page.header.undo_requested.emit()
    assert desk.placement == loaded
    assert not desk.undo_text
    assert stage.parts.bridge.state.model is not None and stage.parts.bridge.state.model.placement == loaded


def test_nothing_of_now_is_said_beside_what_was_then(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placed(stage, tmp_path, monkeypatch)
    controller, monitors = findings_of(stage), stage.parts.monitors
    stage.window.show_page("monitors")
    assert controller.strip is not None and controller.ops is not None
    said = (Finding("R-CONT", "external", "cc uses a core.", "why"),)
    monkeypatch.setattr(type(controller.ops), "findings", said)
    controller.refresh()
    assert controller.strip.sentences == ("cc uses a core.",) and controller.strip.isVisible()
    monitors.replayed = Replayed(7, datetime(2026, 3, 4, 14, 2), "SmolLM2", 42.0)
    monitors.replay_changed.emit()
    assert controller.strip.isHidden()
    monitors.replayed = None
    monitors.replay_changed.emit()
    assert controller.strip.isVisible()


@pytest.mark.parametrize("does", ["pin", "tune"])
def test_a_finding_about_workers_opens_the_choice_of_cores(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: Literal["pin", "tune"]
) -> None:
    placed(stage, tmp_path, monkeypatch)
    controller = findings_of(stage)
    stage.window.show_page("monitors")
    assert controller.strip is not None
    controller.strip.show_findings((Finding("R-CONT", "external", "cc uses a core.", "why", Action(does, "Choose other cores")),))
    controller.strip.row(0).button.click()
    assert stage.window.findChild(WorkersWindow) is not None
    assert stage.window.doors["monitors"].is_page(stage.window._stack.currentWidget())


def test_buttons_put_back_what_others_have_moved(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, loaded = placed(stage, tmp_path, monkeypatch)
    controller = findings_of(stage)
    stage.window.show_page("monitors")
    assert controller.strip is not None
    controller.strip.show_findings(
        (
            Finding("R-NUMA-1", "misplaced", "48 % are elsewhere.", "why", Action("place again", "Place it again")),
            Finding("R-PIN", "misplaced", "A worker was moved.", "why", Action("repin", "Pin it again", cpus="0-3")),
        )
    )
    for row in (0, 1):
        controller.strip.row(row).button.click()
    stage.qtbot.waitUntil(lambda: len([one for one in stage.engine.commands if isinstance(one, PinWorkers)]) == 1)
    (applied,) = [one for one in stage.engine.commands if isinstance(one, ApplyPlacement)]
    (pinned,) = [one for one in stage.engine.commands if isinstance(one, PinWorkers)]
    assert applied.placement == loaded and pinned.cpus == "0-3"
    assert stage.window.doors["monitors"].is_page(stage.window._stack.currentWidget())
