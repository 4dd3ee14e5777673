"""DoctorSymptoms: the pane of symptoms over the tree: which symptom, what the person said, and what the evidence says."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

from app.doctor.symptom_pane import SymptomPane
from app.doctor.symptom_views import CauseView, LinkView, OptionView, StepView, SymptomView, WalkView
from app.i18n import tr
from engine.advice.symptom_walk import Cause, Evidence, FromCheck, Question, Tree, Walk, walk


class DoctorSymptoms(QObject):
    """link_chosen(LinkView). evidence is asked for at each step; `refresh` asks again."""

    link_chosen = Signal(object)

    def __init__(self, pane: SymptomPane, tree: Tree, evidence: Callable[[], Evidence], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._pane, self._tree, self._evidence = pane, tree, evidence
        self._symptom = ""
        self._given: dict[str, str] = {}
        self._asked_again: set[str] = set()
        pane.set_symptoms([SymptomView(one.id, one.title, one.detail) for one in tree.symptoms])
        pane.symptom_chosen.connect(self.choose)
        pane.answered.connect(self._on_answered)
        pane.taken_back.connect(self._on_taken_back)
        pane.link_chosen.connect(self.link_chosen)

    def choose(self, symptom: str) -> None:
        """Begins with a symptom; empty: back to the list."""
        self._symptom = symptom
        self._given, self._asked_again = {}, set()
        self.refresh()
        self._pane.focus_first()

    def refresh(self) -> None:
        """Checks, findings or figures have changed."""
        if self._symptom:
            self._pane.show_walk(view_of(self.walk(), self._evidence(), self._asked_again))
        else:
            self._pane.show_list()

    def walk(self) -> Walk:
        """As far as it has come. A question whose told answer the person took back is open again."""
        symptom = self._tree.symptom(self._symptom)
        done = walk(self._tree, symptom, self._evidence(), self._given)
        for n, step in enumerate(done.steps):
            if step.question.id in self._asked_again and step.question.id not in self._given:
                return Walk(symptom, done.steps[:n], step.question)
        return done

    def _on_answered(self, question: str, key: str) -> None:
        self._given[question] = key
        self.refresh()

    def _on_taken_back(self, question: str) -> None:
        self._given.pop(question, None)
        self._asked_again.add(question)
        self.refresh()


def view_of(done: Walk, evidence: Evidence, asked_again: set[str] | frozenset[str] = frozenset()) -> WalkView:
    """What the pane shows of a walk."""
    steps = tuple(
        StepView(step.question.id, step.question.text, step.answer.text, step.told, step.because) for step in done.steps
    )
    if isinstance(done.end, Cause):
        return WalkView(done.symptom.title, steps, cause=_cause_of(done.end))
    return _open(done.symptom.title, steps, done.end, evidence, asked_again)


def _open(
    title: str, steps: tuple[StepView, ...], question: Question, evidence: Evidence, asked_again: set[str] | frozenset[str]
) -> WalkView:
    denied = {answer.key: because for answer, because in question.ruled_out(evidence)}
    options = tuple(OptionView(answer.key, answer.text, denied.get(answer.key, "")) for answer in question.answers)
    sources = [source for answer in question.answers for source in answer.told_by if isinstance(source, FromCheck)]
    missing = [source for source in sources if source.judge(evidence) is None]
    note = ""
    if missing and question.id not in asked_again:
        note = tr("Doctor", "Some checks could not tell or have not run; “All checks” may answer this.")
    return WalkView(title, steps, question.id, question.text, options, note=note)


def _cause_of(cause: Cause) -> CauseView:
    links = tuple(LinkView(link.kind, link.text, link.target) for link in cause.links)
    return CauseView(cause.cause, cause.todo, links, tuple(myth.text for myth in cause.myths))
