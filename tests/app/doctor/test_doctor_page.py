"""The doctor's page by itself: rows in their states, what opens, what is copied, filters, runs, and narrow windows."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.doctor.doctor_page import DoctorPage
from app.doctor.rows import STATUSES, CheckView, Status, summary, worst
from app.widgets.copy_button import CopyButton
from tests.helpers.doctor_rows import BAD, GOOD, NONE, SLOW, view

pytestmark = pytest.mark.usefixtures("themed")
ALL = (view(GOOD), view(NONE), view(SLOW), view(BAD))


@pytest.fixture
def page(qtbot: QtBot) -> DoctorPage:
    page = DoctorPage()
    qtbot.addWidget(page)
    page.resize(1300, 800)
    page.show()
    return page


def shown(page: DoctorPage) -> list[str]:
    return [row.view.id for row in page.checks.shown]


def test_rows_stand_in_their_groups_and_what_does_not_apply_is_left_out(page: DoctorPage) -> None:
    page.show_all(ALL, "checked at 14:02")
    assert shown(page) == ["D-CPU-1", "D-NUMA-2", "D-PCI-1"]
    page.filter.chips["n/a"].click()
    assert shown(page) == ["D-CPU-1", "D-CPU-6", "D-NUMA-2", "D-PCI-1"]
    for status in ("pass", "n/a", "unknown"):
        page.filter.chips[status].setChecked(False)
    assert shown(page) == ["D-NUMA-2", "D-PCI-1"]
    assert [chip.text() for chip in page.filter.chips.values()] == [
        "Problems 1", "Warnings 1", "Not known 0", "Fine 1", "Does not apply 1",
    ]  # fmt: skip


def test_a_row_says_its_state_and_opens_to_evidence_and_fixes(page: DoctorPage, qtbot: QtBot) -> None:
    page.show_all(ALL, "")
    row = next(row for row in page.checks.shown if row.view.id == "D-NUMA-2")
    assert row.head.accessibleName() == "Balancing: Warning. it is on."
    assert row.head.accessibleDescription() == "The kernel may move memory."
    row.head.click()
    texts = [label.text() for label in row.findChildren(QLabel) if not label.isHidden()]
    assert "/proc/sys: 1" in texts
    assert "sudo sysctl kernel.numa_balancing=0" in texts
    assert "Changes: until the next start" in texts
    assert "Undo: sudo sysctl kernel.numa_balancing=1" in texts
    (copy,) = row.findChildren(CopyButton)
    assert copy.accessibleName() == "Copy: sudo sysctl kernel.numa_balancing=0"
    qtbot.mouseClick(copy, Qt.MouseButton.LeftButton)
    assert QGuiApplication.clipboard().text() == "sudo sysctl kernel.numa_balancing=0"
    row.head.click()
    assert not row.is_open


def test_an_open_row_says_what_its_head_has_no_room_for(page: DoctorPage) -> None:
    long = view(SLOW, observed="a very long finding " * 20)
    page.show_all((long,), "")
    (row,) = page.checks.shown
    row.set_open(True)
    prose = [label for label in row.findChildren(QLabel) if label.text() == long.observed]
    assert [label.isHidden() for label in prose] == [False]
    row.show_view(view(SLOW))
    prose = [label for label in row.findChildren(QLabel) if label.text() == "it is on" and not label.isHidden()]
    assert prose == []


def test_the_keyboard_goes_through_rows_and_opens_them(page: DoctorPage) -> None:
    page.show_all(ALL, "")
    page.activateWindow()
    first, second, third = page.checks.shown
    first.head.setFocus(Qt.FocusReason.TabFocusReason)
    QTest.keyClick(first.head, Qt.Key.Key_Down)
    assert second.head.hasFocus()
    QTest.keyClick(second.head, Qt.Key.Key_Right)
    assert second.is_open
    QTest.keyClick(second.head, Qt.Key.Key_Left)
    assert not second.is_open
    QTest.keyClick(second.head, Qt.Key.Key_Return)
    assert second.is_open
    QTest.keyClick(second.head, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text().splitlines() == [
        "Balancing: Warning. it is on", "The kernel may move memory.", "/proc/sys: 1", "sudo sysctl kernel.numa_balancing=0",
    ]  # fmt: skip
    QTest.keyClick(second.head, Qt.Key.Key_Down)
    QTest.keyClick(third.head, Qt.Key.Key_Down)
    assert third.head.hasFocus()


def test_results_come_one_by_one_and_rows_stay_the_same(page: DoctorPage) -> None:
    page.show_all(ALL, "checked at 14:02")
    rows = page.checks.shown
    rows[1].set_open(True)
    page.begin(3)
    assert not page.header.run.isEnabled()
    assert page.verdict.text.startswith("Looking at this machine")
    page.add(view(GOOD), 1)
    page.add(view(SLOW, status="pass", observed="it is off"), 2)
    assert "2 of 3 checks" in page.verdict.text
    page.end("checked at 14:05")
    assert page.header.run.isEnabled()
    assert page.checks.shown == rows[:2]
    assert rows[1].is_open and rows[1].view.status == "pass"
    assert page.verdict.text == "Everything that was checked is as it should be\n2 fine · checked at 14:05"


def test_rows_of_checks_that_were_not_asked_stay(page: DoctorPage) -> None:
    page.show_all(ALL, "")
    page.begin(1)
    page.add(view(GOOD), 1)
    page.end("", kept={"D-CPU-1", "D-PCI-1"})
    assert shown(page) == ["D-CPU-1", "D-PCI-1"]


def test_a_check_with_several_results_has_several_rows(page: DoctorPage) -> None:
    page.show_all((view(BAD, status="pass"), view(BAD)), "")
    assert shown(page) == ["D-PCI-1", "D-PCI-1"]
    assert page.reveal("D-PCI-1")
    assert [row.is_open for row in page.checks.shown] == [False, True]
    assert not page.reveal("D-XYZ-1")


def test_the_verdict_leads_to_the_worst_rows_one_after_the_other(page: DoctorPage) -> None:
    page.show_all((*ALL, view(BAD, id="D-PCI-2", title="Generation")), "")
    assert page.verdict.text.startswith("2 problems to solve\n2 problems, 1 warning, 1 fine, 1 that do not apply")
    assert page.verdict.show_it.text() == "Show them"
    for id in ("D-PCI-1", "D-PCI-2", "D-PCI-1"):
        page.verdict.show_it.click()
        assert page.focusWidget() is next(row for row in page.checks.shown if row.view.id == id).head


@pytest.mark.parametrize(
    ("statuses", "state", "title"),
    [
        (("pass", "n/a"), "pass", "Everything that was checked is as it should be"),
        (("pass", "unknown"), "unknown", "Nothing is wrong as far as could be seen"),
        (("unknown", "warn"), "warn", "It works, but slower or less safely than it could"),
        (("warn", "fail"), "fail", "1 problem to solve"),
    ],
)
def test_the_verdict_is_that_of_the_worst(statuses: tuple[Status, ...], state: Status, title: str) -> None:
    rows = [CheckView(str(i), "G", "T", status, "", "") for i, status in enumerate(statuses)]
    assert worst(rows) == state
    assert summary(rows, "").title == title
    assert set(statuses) <= set(STATUSES)


def test_before_the_first_run_it_says_how_to_begin(page: DoctorPage) -> None:
    assert page.verdict.text == "Nothing was checked yet\nRun the checks with F5."
    assert page.verdict.show_it.isHidden()


def test_a_narrow_page_shows_symptoms_in_the_place_of_checks(page: DoctorPage) -> None:
    page.show_all(ALL, "")
    page.show_symptoms()
    assert page.checks.isVisible() and page.symptoms.isVisible()
    page.resize(640, 800)
    assert not page.checks.isVisible() and page.symptoms.isVisible()
    assert page.reveal("D-PCI-1")
    assert page.checks.isVisible() and not page.symptoms.isVisible()
