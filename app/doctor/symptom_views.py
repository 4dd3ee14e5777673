"""What the pane of symptoms shows, as plain values: the list of symptoms, or how far a walk has come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SymptomView:
    """One entry of the list."""

    id: str
    title: str
    detail: str


@dataclass(frozen=True, slots=True)
class StepView:
    """A question with its answer. told: by evidence, which `because` says; else the person said so."""

    id: str
    question: str
    answer: str
    told: bool
    because: str = ""


@dataclass(frozen=True, slots=True)
class OptionView:
    """An answer that can be chosen. denied_by: the evidence against it, empty for none."""

    key: str
    text: str
    denied_by: str = ""


@dataclass(frozen=True, slots=True)
class LinkView:
    """An action that helps. kind and target as in `engine.advice.symptom_walk.Link`."""

    kind: str
    text: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class CauseView:
    """The end of a walk. myths: whole paragraphs."""

    cause: str
    todo: tuple[str, ...]
    links: tuple[LinkView, ...] = ()
    myths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WalkView:
    """Of one symptom. Either question with options, or cause. note: what would answer more by itself, empty for nothing."""

    title: str
    steps: tuple[StepView, ...] = ()
    question_id: str = ""
    question: str = ""
    options: tuple[OptionView, ...] = ()
    cause: CauseView | None = None
    note: str = ""
