"""What the button of each kind of finding does in the window: exactly what it says, with the value filled in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.ops.diagnosis_ops import Preview
from app.windows.finding_actions import FindingActions
from app.windows.picker import Picker
from app.windows.workers_window import WorkersWindow
from engine.advice.diagnosis.finding import Action, Finding, Gain, gain_sentence
from engine.api.commands import ApplyPlacement, LoadModel, PinWorkers, TuneWorkers
from engine.api.events import Failed, ModelUnloaded, PlacementApplied
from engine.api.pure import Gpu, Numa, Placement
from engine.api.values import RequestId
from tests.app.windows.conftest import Stage
from tests.app.windows.test_findings import findings_of, placed
from tests.helpers.doctor_rows import BAD, GOOD, check

pytestmark = pytest.mark.usefixtures("themed")


def press(stage: Stage, action: Action, gain: Gain | None = None) -> None:
    """The button of a finding with this action, on the Monitors page."""
    controller = findings_of(stage)
    stage.window.show_page("monitors")
    assert controller.strip is not None
    controller.strip.show_findings((Finding("R-TEST", "external", "Something.", "why", action, gain),))
    assert controller.strip.row(0).button.isVisible()
    controller.strip.row(0).button.click()


def actions_of(stage: Stage) -> FindingActions:
    found = findings_of(stage).actions
    assert found is not None
    return found


def moved(placement: Placement, n: int) -> Placement:
    """With n units elsewhere."""
    units = list(placement.units)
    for i, (unit, where) in enumerate(units):
        if unit.kind in ("experts", "ffn") and n:
            units[i], n = (unit, Numa(0) if isinstance(where, Gpu) else Gpu(0)), n - 1
    return replace(placement, units=tuple(units))


@pytest.mark.parametrize("does", ["relieve", "rebalance", "make room", "ease", "without"])
def test_each_proposal_is_a_step_of_its_own_with_what_it_brings_or_costs(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    path, loaded = placed(stage, tmp_path, monkeypatch)
    gain = Gain(-4.0, 1.0, moved(loaded, 2), "Move 2 layers from GPU 0 to memory node 0, which frees 0.4 GB", 2, Numa(0), 10**8)
    assert gain_sentence(gain).endswith("frees 0.4 GB: about -4 % (give or take 1 %).")
    press(stage, Action(does, "Make room", "gpu0"), gain)  # type: ignore[arg-type]
    editor = stage.window.placement.controller()
    stage.qtbot.waitUntil(lambda: editor.desk.placement == gain.placement, timeout=30_000)
    assert editor.desk.path == path and editor.desk.undo_text == gain.text
    assert editor.desk.pending > 0 and not stage.engine.sent(ApplyPlacement)
    assert "about -4 %" in editor.page.toast._label.text() and "Ctrl+Z" in editor.page.toast._label.text()
    # Both predictions are on the page: of the loaded placement and of the proposal.
    assert editor.desk.prediction != editor.desk.prediction_applied
    assert editor.desk.undo()
    assert editor.desk.placement == loaded and editor.desk.pending == 0


def test_a_lost_card_is_marked_and_the_plan_without_it_can_be_loaded(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, loaded = placed(stage, tmp_path, monkeypatch)
    info = stage.parts.bridge.state.model
    assert info is not None
    without = replace(loaded, units=tuple((unit, Gpu(0) if where == Gpu(1) else where) for unit, where in loaded.units))
    stage.engine.tell(Failed(RequestId("a"), "DeviceLost", "gpu1 (A card) stopped working"), ModelUnloaded(RequestId("b")))
    stage.qtbot.waitUntil(lambda: stage.parts.bridge.state.model is None)
    gain = Gain(-30.0, 0.0, without, "Move what lay on GPU 1 to GPU 0", 3, Gpu(0), 10**9)
    actions_of(stage).show(Preview(path, without, gain.text, gain_sentence(gain), info, "gpu1"))
    editor = stage.window.placement.controller()
    stage.qtbot.waitUntil(lambda: editor.desk.placement == without, timeout=30_000)
    assert editor.desk.n_ctx == info.n_ctx
    assert [row.lost for row in editor.desk.devices() if row.device == Gpu(1)] == [True]
    assert editor.desk.state == "ready" and editor.page.header.apply.isEnabled()


def test_the_choice_of_workers_opens_with_the_cores_filled_in(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed(stage, tmp_path, monkeypatch)
    cpus = "0-0"
    press(stage, Action("pin", "Choose quieter cores", cpus=cpus))
    window = stage.window.findChild(WorkersWindow)
    assert isinstance(window, WorkersWindow)
    assert window.pane.list.text() == cpus and window.pane.grid.chosen == (0,)
    assert "once applied" in window.pane.state.text()
    assert not stage.engine.sent(PinWorkers)  # until it is applied there
    window.pane.apply.click()
    stage.qtbot.waitUntil(lambda: [one.cpus for one in stage.engine.sent(PinWorkers)] == [cpus])  # type: ignore[union-attr]


def test_numbers_of_workers_are_tried_when_the_button_says_so(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed(stage, tmp_path, monkeypatch)
    press(stage, Action("tune", "Try numbers of workers"))
    stage.qtbot.waitUntil(lambda: len(stage.engine.sent(TuneWorkers)) == 1)
    window = stage.window.findChild(WorkersWindow)
    assert isinstance(window, WorkersWindow)
    stage.qtbot.waitUntil(lambda: window.pane.tuning.best.isEnabled())
    window.close()
    stage.qtbot.waitUntil(lambda: stage.window.findChild(WorkersWindow) is None)
    press(stage, Action("tune", "Try numbers of workers"))
    stage.qtbot.waitUntil(lambda: len(stage.engine.sent(TuneWorkers)) == 2)


def test_a_context_is_planned_with_the_tokens_filled_in(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placed(stage, tmp_path, monkeypatch)
    editor = stage.window.placement.controller()
    wanted = 2 * editor.desk.n_ctx
    press(stage, Action("context", f"Plan a context of {wanted:,} tokens", n_ctx=wanted))
    pane = editor.page.context
    assert editor.page.pane == "context"
    stage.qtbot.waitUntil(lambda: pane.take.isVisible() and pane.take.isEnabled(), timeout=30_000)
    before = editor.desk.n_ctx
    pane.take.click()
    stage.qtbot.waitUntil(lambda: editor.desk.n_ctx == wanted, timeout=30_000)
    assert before != wanted and not stage.engine.sent(ApplyPlacement)


def test_a_context_is_filled_in_also_where_the_page_was_never_open(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed(stage, tmp_path, monkeypatch)
    editor = stage.window.placement.controller()
    editor.desk.close()
    press(stage, Action("context", "Plan a context of 4,096 tokens", n_ctx=4096))
    stage.qtbot.waitUntil(lambda: editor.desk.outline is not None and editor.context._wanted == 4096, timeout=30_000)
    stage.qtbot.waitUntil(lambda: "4,096" in editor.page.context._tokens.text(), timeout=30_000)


def test_the_row_of_the_doctor_is_opened_and_asked_again(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    rows = (check(GOOD), check(BAD, before=lambda: asked.append(1)))
    monkeypatch.setattr("app.ops.doctor_ops._engine_checks", lambda: rows)
    placed(stage, tmp_path, monkeypatch)
    for times in (1, 2):
        press(stage, Action("doctor", "Open Doctor", target=BAD.id))
        controller = stage.window.doctor.controller()
        stage.qtbot.waitUntil(lambda: len(asked) >= times and not controller._ops.running, timeout=20_000)  # noqa: B023
        assert stage.window._door() is stage.window.doctor
        opened = [row.view.id for row in controller.page.checks.shown if row.is_open]
        stage.qtbot.waitUntil(lambda: BAD.id in [row.view.id for row in controller.page.checks.shown if row.is_open])  # noqa: B023
        assert GOOD.id not in opened


def test_pages_are_placed_again_by_the_placement_that_is_loaded(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, loaded = placed(stage, tmp_path, monkeypatch)
    told: list[str] = []
    actions_of(stage).place_again.notice.connect(told.append)
    press(stage, Action("place again", "Place it again"))
    stage.qtbot.waitUntil(lambda: bool(told))
    assert [one.placement for one in stage.engine.sent(ApplyPlacement)] == [loaded]  # type: ignore[union-attr]
    assert told[0].startswith("Sent ") and "memory nodes" in told[0]
    assert not actions_of(stage).place_again.running
    actions_of(stage).place_again._on_applied(PlacementApplied(RequestId("x"), stage.parts.bridge.state.model, 0, 0.0))  # type: ignore[arg-type]
    assert told[-1].startswith("All that could be looked at")


def test_the_model_is_loaded_again_where_a_button_says_so(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = placed(stage, tmp_path, monkeypatch)
    before = len(stage.engine.sent(LoadModel))
    press(stage, Action("load again", "Load it again", "gpu0"))
    stage.qtbot.waitUntil(lambda: len(stage.engine.sent(LoadModel)) == before + 1)
    assert stage.engine.sent(LoadModel)[-1].path == path  # type: ignore[union-attr]


def test_another_model_is_chosen_where_none_of_this_fits(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placed(stage, tmp_path, monkeypatch)
    press(stage, Action("model", "Choose a smaller model"))
    picker = stage.window.findChild(Picker)
    assert picker is not None and picker.isVisible()
