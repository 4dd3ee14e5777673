"""The doctor through the window: its page, what it says elsewhere, and where its actions lead."""

from __future__ import annotations

import threading

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest

from app.doctor.symptom_views import LinkView
from app.windows.doctor_controller import DoctorController
from engine.advice.doctor.check import Check
from engine.advice.doctor.context import Context
from tests.app.windows.conftest import Stage
from tests.helpers.doctor_rows import BAD, GOOD, NONE, SLOW, check

pytestmark = pytest.mark.usefixtures("themed")
QT_IDS = [f"D-QT-{n}" for n in range(1, 8)]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """The engine's checks, as the test writes them."""
    checks: list[Check] = [check(GOOD), check(NONE), check(SLOW)]
    monkeypatch.setattr("app.ops.doctor_ops._engine_checks", lambda: tuple(checks))
    monkeypatch.setattr("app.windows.doctor_door.make_context", lambda *_args: Context())
    return checks


def opened(stage: Stage) -> DoctorController:
    """The page, after its first run."""
    stage.window.actions_.action("doctor_page").trigger()
    controller = stage.window.doctor.controller()
    stage.qtbot.waitUntil(lambda: not stage.window.doctor.ops.running)
    return controller


def ids(controller: DoctorController) -> list[str]:
    return [view.id for view in controller.page.checks.views]


def test_the_page_runs_its_checks_when_it_is_first_shown(stage: Stage, table: list[Check]) -> None:
    controller = opened(stage)
    assert ids(controller)[:3] == ["D-CPU-1", "D-CPU-6", "D-NUMA-2"]
    assert set(QT_IDS) <= set(ids(controller))
    assert "checked at" in controller.page.verdict.text
    assert stage.window._rail._items["doctor"].dot == "warn"
    assert stage.window._rail._items["doctor"].isChecked()


def test_f5_runs_again_and_all_checks_run_too(stage: Stage, table: list[Check]) -> None:
    controller = opened(stage)
    table.append(check(BAD, quick=False))
    stage.window.activateWindow()
    stage.qtbot.waitUntil(stage.window.isActiveWindow)
    with stage.qtbot.waitSignal(stage.window.doctor.ops.ended):
        QTest.keyClick(stage.window, Qt.Key.Key_F5)
    assert "D-PCI-1" not in ids(controller)
    with stage.qtbot.waitSignal(stage.window.doctor.ops.ended):
        controller.page.header.all.click()
    assert "D-PCI-1" in ids(controller)
    assert stage.window._rail._items["doctor"].dot == "err"


def test_the_page_lives_while_a_check_takes_its_time(stage: Stage, table: list[Check]) -> None:
    gate = threading.Event()
    table.append(check(BAD, before=lambda: gate.wait(60) and None))
    stage.window.actions_.action("doctor_page").trigger()
    controller = stage.window.doctor.controller()
    stage.qtbot.waitUntil(lambda: "D-NUMA-2" in ids(controller))
    assert "Looking at this machine" in controller.page.verdict.text
    assert "D-PCI-1" not in ids(controller)
    controller.page.filter.chips["n/a"].click()
    gate.set()
    stage.qtbot.waitUntil(lambda: "D-PCI-1" in ids(controller))


def test_the_quick_checks_run_behind_the_window_and_tell_the_rail_and_the_first_page(
    stage: Stage, table: list[Check], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.windows.doctor_door.AFTER_START_MS", 10)
    monkeypatch.setattr("app.windows.doctor_door.AFTER_LOAD_MS", 10)
    stage.window.start(None, load_last=True)
    stage.qtbot.waitUntil(lambda: bool(stage.window.welcome.warning))
    assert stage.window.welcome.warning == "Balancing: it is on. The kernel may move memory."
    assert stage.window._rail._items["doctor"].dot == "warn"
    stage.window.welcome._content.warning.link.click()
    controller = stage.window.doctor.controller()
    (row,) = [row for row in controller.page.checks.shown if row.is_open]
    assert row.view.id == "D-NUMA-2" and row.head.hasFocus()
    table[:] = [check(GOOD)]
    stage.load()
    stage.qtbot.waitUntil(lambda: stage.window._rail._items["doctor"].dot != "warn" or "D-NUMA-2" not in ids(controller))
    stage.qtbot.waitUntil(lambda: "D-NUMA-2" not in ids(controller))


def test_the_report_names_nobody(stage: Stage, table: list[Check], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.windows.doctor_controller._user", lambda: "ada")
    home = str(stage.parts.paths.data)
    table.append(check(type(BAD)("D-DSK-3", "Disk", "Space", "warn", f"{home}/x of ada", "Why.", (), f"{home}/chats.db")))
    stage.load()
    stage.send("a secret question")
    controller = opened(stage)
    controller.page.header.report.click()
    text = QGuiApplication.clipboard().text()
    assert text.startswith("Layerdeck ") and "Model: llama, Q4_1" in text and "D-NUMA-2" in text
    assert home not in text and "ada" not in text and "secret" not in text
    assert "<folder>/x of <user>" in text


def test_a_link_to_a_check_that_has_not_run_runs_all_of_them(stage: Stage, table: list[Check]) -> None:
    table.append(check(BAD, quick=False))
    controller = opened(stage)
    controller.show_symptom("link")
    walk = controller.symptoms.walk()
    assert walk.steps == ()
    controller.reveal("D-PCI-1")
    stage.qtbot.waitUntil(lambda: any(row.is_open for row in controller.page.checks.shown))
    assert controller.symptoms.walk().end.id == "link.lanes"
    cause = controller.page.symptoms.cause
    assert cause is not None and "fewer lanes" in cause.view.cause
    controller.reveal("D-XYZ-9")
    stage.qtbot.waitUntil(lambda: controller.page.toast.isVisible())


@pytest.mark.qt_log_ignore("does not support")
@pytest.mark.parametrize(("kind", "page"), [("placement", "placement"), ("context", "placement"), ("sampling", "chat")])
def test_links_lead_to_other_pages(stage: Stage, table: list[Check], kind: str, page: str) -> None:
    opened(stage).link_wanted.emit(LinkView(kind, "x"))
    assert stage.window._rail._items[page].isChecked()


def test_a_link_leads_to_the_settings_of_the_engine(stage: Stage, table: list[Check]) -> None:
    opened(stage).link_wanted.emit(LinkView("settings", "x"))
    assert stage.window._preferences is not None
    stage.window._preferences.close()
