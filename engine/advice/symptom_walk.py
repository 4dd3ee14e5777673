"""A walk through a tree of symptoms: questions that evidence answers where it can, else the person; at its end a cause.

Values and a pure function: pages show them, tests walk them. The tree itself is `symptoms`. Nothing here looks at the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

LinkKind = Literal["check", "placement", "context", "reload", "unload", "monitors", "sampling", "settings", "calibrate"]
"""Where an action leads: a row of the doctor, the placement editor, its plan of the context, ..."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a check found: its status (`pass`, `warn`, `fail`, `unknown`, `n/a`) and the sentence for people."""

    status: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known without asking anybody. checks: by id, the worst where a check has several rows; findings: sentences of the
    live diagnosis by rule; figures: see `symptoms`."""

    checks: Mapping[str, Said] = field(default_factory=dict)
    findings: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether something is so, and what says it. weak: only because it does not apply here."""

    holds: bool
    because: str
    weak: bool = False


@dataclass(frozen=True, slots=True)
class FromCheck:
    """Holds when the check warns or fails; does not when it passes or does not apply."""

    id: str

    def judge(self, evidence: Evidence) -> Verdict | None:
        """None: the check was not made or does not know."""
        said = evidence.checks.get(self.id)
        if said is None or said.status not in ("pass", "warn", "fail", "n/a"):
            return None
        return Verdict(said.status in ("warn", "fail"), said.sentence, weak=said.status == "n/a")


@dataclass(frozen=True, slots=True)
class FromFinding:
    """Holds while the live diagnosis says so. Its silence says nothing: most rules speak only while a model works."""

    rule: str

    def judge(self, evidence: Evidence) -> Verdict | None:
        """None: nothing is said now."""
        sentence = evidence.findings.get(self.rule)
        return None if sentence is None else Verdict(True, sentence)


@dataclass(frozen=True, slots=True)
class FromFigure:
    """Holds when the figure lies within least and most, both included. words: what it is, `%1` stands for it."""

    key: str
    words: str
    least: float = float("-inf")
    most: float = float("inf")

    def judge(self, evidence: Evidence) -> Verdict | None:
        """None: the figure is not known."""
        value = evidence.figures.get(self.key)
        if value is None:
            return None
        shown = f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.1f}"
        return Verdict(self.least <= value <= self.most, self.words.replace("%1", shown))


Source = FromCheck | FromFinding | FromFigure


@dataclass(frozen=True, slots=True)
class Answer:
    """text: as a person would say it. then: the id of the next question or cause. told_by: each can say that it is so."""

    key: str
    text: str
    then: str
    told_by: tuple[Source, ...] = ()

    def judge(self, evidence: Evidence) -> Verdict | None:
        """So if one source says so; not so if all checks and figures deny it; None else."""
        judged = [(source, source.judge(evidence)) for source in self.told_by]
        verdicts = [verdict for _source, verdict in judged if verdict is not None]
        if (agreed := next((one for one in verdicts if one.holds), None)) is not None:
            return agreed
        if any(verdict is None and not isinstance(source, FromFinding) for source, verdict in judged):
            return None
        return min(verdicts, key=lambda one: one.weak, default=None)


@dataclass(frozen=True, slots=True)
class Question:
    """Answers in the order in which they are believed. otherwise: the last one is taken when all others are denied."""

    id: str
    text: str
    answers: tuple[Answer, ...]
    otherwise: bool = True

    def told(self, evidence: Evidence) -> tuple[Answer, str] | None:
        """The answer that the evidence gives and what says it; None: the person has to say."""
        denied: list[str] = []
        for answer in self.answers:
            verdict = answer.judge(evidence)
            if verdict is None:
                continue
            if verdict.holds:
                return answer, verdict.because
            denied.append(verdict.because)
        if self.otherwise and len(denied) == len(self.answers) - 1 and not self.answers[-1].told_by:
            return self.answers[-1], " ".join(denied) if len(denied) == 1 else ""
        return None

    def ruled_out(self, evidence: Evidence) -> tuple[tuple[Answer, str], ...]:
        """The answers that the evidence denies, each with what says so. The others are left to the person."""
        judged = [(answer, answer.judge(evidence)) for answer in self.answers]
        return tuple((answer, verdict.because) for answer, verdict in judged if verdict is not None and not verdict.holds)


@dataclass(frozen=True, slots=True)
class Link:
    """An action. target: the id of a check for `check`, else empty."""

    kind: LinkKind
    text: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class Myth:
    """A claim that goes around, as what one may have read, and what is right instead. Never advice by itself."""

    claim: str
    truth: str

    @property
    def text(self) -> str:
        """Both as one paragraph."""
        return f"You may have read that {self.claim}. {self.truth}"


@dataclass(frozen=True, slots=True)
class Cause:
    """The end of a walk. cause: one sentence; todo: steps in the order to try them; links: what helps with that here."""

    id: str
    cause: str
    todo: tuple[str, ...]
    links: tuple[Link, ...] = ()
    myths: tuple[Myth, ...] = ()


@dataclass(frozen=True, slots=True)
class Symptom:
    """What people see. first: the id of the first question or cause."""

    id: str
    title: str
    detail: str
    first: str


@dataclass(frozen=True, slots=True)
class Tree:
    """Symptoms, and every question and cause by its id."""

    symptoms: tuple[Symptom, ...]
    nodes: Mapping[str, Question | Cause]

    def symptom(self, id: str) -> Symptom:
        """Raises: KeyError."""
        found = next((one for one in self.symptoms if one.id == id), None)
        if found is None:
            raise KeyError(id)
        return found


@dataclass(frozen=True, slots=True)
class Step:
    """A question that has its answer. because: the evidence, empty where the person answered or everything else was ruled out."""

    question: Question
    answer: Answer
    told: bool
    because: str = ""


@dataclass(frozen=True, slots=True)
class Walk:
    """As far as it is known: the steps, then the question that is open or the cause."""

    symptom: Symptom
    steps: tuple[Step, ...]
    end: Question | Cause


def tree_of(symptoms: tuple[Symptom, ...], nodes: tuple[Question | Cause, ...]) -> Tree:
    """The tree of these parts. Raises ValueError where an id is twice or names nothing, or where a walk would never end."""
    by_id = {node.id: node for node in nodes}
    if len(by_id) != len(nodes):
        raise ValueError("two nodes have one id")
    wanted = {one.first for one in symptoms}
    wanted |= {answer.then for node in nodes if isinstance(node, Question) for answer in node.answers}
    if missing := wanted - by_id.keys():
        raise ValueError(f"no such node: {', '.join(sorted(missing))}")
    for symptom in symptoms:
        _refuse_circles(by_id, symptom.first, ())
    return Tree(symptoms, by_id)


def _refuse_circles(nodes: Mapping[str, Question | Cause], id: str, above: tuple[str, ...]) -> None:
    if id in above:
        raise ValueError(f"a circle: {' '.join((*above, id))}")
    node = nodes[id]
    if isinstance(node, Question):
        for then in {answer.then for answer in node.answers}:
            _refuse_circles(nodes, then, (*above, id))


def walk(tree: Tree, symptom: Symptom, evidence: Evidence, given: Mapping[str, str]) -> Walk:
    """How far one comes. given: answers of the person by question, by their keys; they win over evidence. An answer that its
    question does not have is as if it was not given."""
    steps: list[Step] = []
    node = tree.nodes[symptom.first]
    while isinstance(node, Question):
        step = _step(node, evidence, given.get(node.id))
        if step is None:
            break
        steps.append(step)
        node = tree.nodes[step.answer.then]
    return Walk(symptom, tuple(steps), node)


def _step(question: Question, evidence: Evidence, key: str | None) -> Step | None:
    said = next((answer for answer in question.answers if answer.key == key), None)
    if said is not None:
        return Step(question, said, told=False)
    told = question.told(evidence)
    return None if told is None else Step(question, told[0], told=True, because=told[1])
