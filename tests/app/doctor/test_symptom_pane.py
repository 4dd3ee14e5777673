"""The pane of symptoms: from the list over questions to a cause, by mouse and keyboard, and back."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from app.doctor.step_line import StepLine
from app.doctor.symptom_pane import SymptomPane
from app.widgets.buttons import LinkButton
from app.windows.doctor_symptoms import DoctorSymptoms
from engine.advice.symptom_walk import Evidence, Said
from engine.advice.symptoms import SYMPTOMS, TREE

pytestmark = pytest.mark.usefixtures("themed")


class Pane:
    """The pane over the tree, with evidence that the test writes."""

    def __init__(self, qtbot: QtBot) -> None:
        self.evidence = Evidence()
        self.pane = SymptomPane()
        qtbot.addWidget(self.pane)
        self.pane.resize(420, 800)
        self.symptoms = DoctorSymptoms(self.pane, TREE, lambda: self.evidence, self.pane)
        self.pane.show()

    def choose(self, text: str) -> None:
        next(button for button in self.pane.options if button.text() == text).click()

    def texts(self) -> list[str]:
        QApplication.processEvents()
        return [label.text() for label in self.pane.findChildren(QLabel) if label.isVisible()]


@pytest.fixture
def shown(qtbot: QtBot) -> Pane:
    return Pane(qtbot)


def test_a_person_walks_from_a_symptom_to_a_cause_and_back(shown: Pane) -> None:
    assert [button.text() for button in shown.pane.options] == [symptom.title for symptom in SYMPTOMS]
    shown.choose("The text is garbled or repeats itself")
    assert shown.pane.title == "The text is garbled or repeats itself"
    shown.choose("Good at first, nonsense after a long text")
    shown.choose("Yes, by an option or an imported configuration")
    cause = shown.pane.cause
    assert cause is not None and "another base" in cause.view.cause
    assert any(text.startswith("You may have read that rope_theta has to be 10000") for text in shown.texts())
    steps = shown.pane.findChildren(StepLine)
    assert len(steps) == 2
    next(button for button in steps[1].findChildren(LinkButton)).click()
    assert shown.pane.cause is None
    assert [button.text() for button in shown.pane.options][-1] == "No"
    back = next(link for link in shown.pane.findChildren(LinkButton) if link.text() == "All symptoms")
    back.click()
    assert len(shown.pane.options) == len(SYMPTOMS)


def test_checks_answer_by_themselves_and_say_why(shown: Pane) -> None:
    shown.evidence = Evidence({"D-PCI-1": Said("warn", "Lanes: GPU 1 runs on 4 of 16.")})
    shown.choose("Copies to a GPU are slow")
    assert shown.pane.cause is not None
    assert "Lanes: GPU 1 runs on 4 of 16." in shown.texts()
    shown.pane.findChildren(StepLine)[0].findChildren(LinkButton)[0].click()
    assert shown.pane.cause is None
    shown.choose("The link makes errors")
    assert shown.pane.cause is not None and "errors" in shown.pane.cause.view.cause
    assert shown.symptoms.walk().steps[0].told is False


def test_what_the_checks_deny_stands_below_with_the_reason(shown: Pane) -> None:
    shown.evidence = Evidence({"D-PCI-1": Said("pass", "Lanes: 16 of 16.")})
    shown.choose("Copies to a GPU are slow")
    assert [button.text() for button in shown.pane.options][-1] == "A card has fewer lanes than it could use"
    assert shown.pane.options[-1].accessibleDescription() == "Lanes: 16 of 16."
    assert any("All checks" in text for text in shown.texts())


def test_new_evidence_goes_on_with_the_walk(shown: Pane) -> None:
    shown.choose("Copies to a GPU are slow")
    assert shown.pane.cause is None
    shown.evidence = Evidence(findings={"R-PCIE-G": "Link runs at generation 3."})
    shown.symptoms.refresh()
    assert shown.pane.cause is not None and "lower generation" in shown.pane.cause.view.cause


def test_the_keyboard_walks_too(shown: Pane, qtbot: QtBot) -> None:
    shown.pane.activateWindow()
    qtbot.waitUntil(shown.pane.isActiveWindow)
    first = shown.pane.options[0]
    first.setFocus(Qt.FocusReason.TabFocusReason)
    QTest.keyClick(first, Qt.Key.Key_Down)
    assert shown.pane.options[1].hasFocus()
    QTest.keyClick(shown.pane.options[1], Qt.Key.Key_Return)
    assert shown.pane.title == SYMPTOMS[1].title
    assert shown.pane.options[0].hasFocus()


def test_links_carry_where_they_lead(shown: Pane, qtbot: QtBot) -> None:
    shown.evidence = Evidence({"D-PCI-1": Said("warn", "Lanes.")})
    shown.choose("Copies to a GPU are slow")
    cause = shown.pane.cause
    assert cause is not None
    with qtbot.waitSignal(shown.symptoms.link_chosen) as told:
        cause.links[0].click()
    assert (told.args[0].kind, told.args[0].target) == ("check", "D-PCI-1")
