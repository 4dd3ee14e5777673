"""SymptomPane: from what a person sees to its cause: a list of symptoms, then questions, then what to do."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.doctor.cause_view import CauseBox
from app.doctor.option_button import OptionButton
from app.doctor.step_line import StepLine
from app.doctor.symptom_views import SymptomView, WalkView
from app.placement.pane import Pane, Prose, Rule
from app.widgets.buttons import LinkButton


class SymptomPane(Pane):
    """symptom_chosen(id, empty: back to the list), answered(question, key), taken_back(question), link_chosen(LinkView)."""

    symptom_chosen = Signal(str)
    answered = Signal(str, str)
    taken_back = Signal(str)
    link_chosen = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(self.tr("By symptom"))
        self._content: QWidget | None = None
        self._shown: object = None
        self._symptoms: tuple[SymptomView, ...] = ()
        self.column.addSpacing(12)
        self.column.addStretch(1)

    def set_symptoms(self, symptoms: Sequence[SymptomView]) -> None:
        """The list, which is shown while no symptom is chosen."""
        self._symptoms = tuple(symptoms)
        self.show_list()

    def show_list(self) -> None:
        """Back to the list."""
        if self._shown == self._symptoms:
            return
        self.set_title(self.tr("What do you see?"), self.tr("Questions are answered from the checks where they can be."))
        box, column = self._fresh(self._symptoms)
        for symptom in self._symptoms:
            button = OptionButton(symptom.title, symptom.detail, box)
            button.clicked.connect(lambda _on=False, id=symptom.id: self.symptom_chosen.emit(id))
            column.addWidget(button)

    def show_walk(self, view: WalkView) -> None:
        """How far a walk has come."""
        if self._shown == view:
            return
        had_keyboard = self.isAncestorOf(self.focusWidget()) if self.focusWidget() is not None else False
        self.set_title(view.title)
        box, column = self._fresh(view)
        back = LinkButton(self.tr("All symptoms"), box, px=12)
        back.clicked.connect(lambda: self.symptom_chosen.emit(""))
        column.addWidget(back, 0, Qt.AlignmentFlag.AlignLeft)
        for step in view.steps:
            line = StepLine(step, box)
            line.change_requested.connect(lambda id=step.id: self.taken_back.emit(id))
            column.addWidget(line)
        if view.steps:
            column.addWidget(Rule())
        if view.cause is not None:
            cause = CauseBox(view.cause, box)
            cause.link_chosen.connect(self.link_chosen)
            column.addWidget(cause)
        else:
            self._add_question(view, box, column)
        if had_keyboard:
            self.focus_first()

    def _add_question(self, view: WalkView, box: QWidget, column: QVBoxLayout) -> None:
        column.addWidget(_heading(view.question))
        open_ones = [option for option in view.options if not option.denied_by]
        for option in open_ones:
            self._add_option(view.question_id, option.key, OptionButton(option.text, "", box), column)
        denied = [option for option in view.options if option.denied_by]
        if denied:
            column.addSpacing(4)
            column.addWidget(Prose(self.tr("The checks speak against:"), 12, "text3"))
        for option in denied:
            self._add_option(view.question_id, option.key, OptionButton(option.text, option.denied_by, box, quiet=True), column)
        if view.note:
            column.addWidget(Prose(view.note, 12, "text3"))

    def _add_option(self, question: str, key: str, button: OptionButton, column: QVBoxLayout) -> None:
        button.clicked.connect(lambda: self.answered.emit(question, key))
        column.addWidget(button)

    def focus_first(self) -> None:
        """The keyboard to the first thing that can be chosen: an option, else an action."""
        for kind in (OptionButton, LinkButton):
            found = [] if self._content is None else self._content.findChildren(kind)
            if found:
                found[0].setFocus(Qt.FocusReason.TabFocusReason)
                return

    @property
    def options(self) -> tuple[OptionButton, ...]:
        """What can be chosen now."""
        return () if self._content is None else tuple(self._content.findChildren(OptionButton))

    @property
    def cause(self) -> CauseBox | None:
        """The end of the walk, if it is there."""
        return None if self._content is None else self._content.findChild(CauseBox)

    def _fresh(self, shown: object) -> tuple[QWidget, QVBoxLayout]:
        """An empty box in the place of what was shown."""
        if self._content is not None:
            self._content.hide()
            self._content.setParent(None)
            self._content.deleteLater()
        self._shown = shown
        self._content = QWidget()
        column = QVBoxLayout(self._content)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        self.column.insertWidget(self.column.count() - 1, self._content)
        self.verticalScrollBar().setValue(0)
        return self._content, column


def _heading(text: str) -> Prose:
    line = Prose(text, 14, "text")
    font = line.font()
    font.setWeight(font.Weight.DemiBold)
    line.setFont(font)
    return line
