"""What a rule is: a row of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.advice.diagnosis.finding import Action, Finding, Level
from engine.advice.diagnosis.window import Window

Find = Callable[[Window], "Said | None"]


@dataclass(frozen=True, slots=True)
class Said:
    """What a rule found. level: where it is another than that of the rule."""

    sentence: str
    why: str
    action: Action = field(default_factory=Action)
    about: str = ""
    level: Level | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One row. needs_fresh: says something of now, so that old readings silence it. at_once: a fact, which needs no window."""

    id: str
    level: Level
    find: Find
    needs_fresh: bool = True
    at_once: bool = False

    def judge(self, window: Window) -> Finding | None:
        """What it says of a window; None: nothing. What is missing never makes it speak."""
        if self.needs_fresh and (window.is_stale or not window.is_enough):
            return None
        said = self.find(window)
        if said is None:
            return None
        return Finding(self.id, said.level or self.level, said.sentence, said.why, said.action, about=said.about)
