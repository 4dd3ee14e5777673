"""Diagnostician: which findings are shown: those that last, without flicker, without what was dismissed, two at most."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from engine.advice.diagnosis.diagnose import diagnose
from engine.advice.diagnosis.finding import ORDER, Finding
from engine.advice.diagnosis.rule import Rule
from engine.advice.diagnosis.table import RULES
from engine.advice.diagnosis.window import SPAN_S, Facts, Reading, Window

ENTER_S = 5.0
LEAVE_S = 10.0
MOST = 2


@dataclass(slots=True)
class _Seen:
    """since: it has been said without a break from then on; last: when it was said last; shown: whether it has lasted."""

    finding: Finding
    since: float
    last: float
    shown: bool = False


class Diagnostician:
    """Takes readings one by one and keeps those of the last SPAN_S. Used by one thread."""

    def __init__(self, rules: Sequence[Rule] = RULES) -> None:
        self._rules = tuple(rules)
        self._ids_at_once = frozenset(rule.id for rule in rules if rule.at_once)
        self._readings: deque[Reading] = deque()
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._dismissed: set[tuple[str, str]] = set()
        self.window = Window(())

    def push(self, reading: Reading, facts: Facts) -> tuple[Finding, ...]:
        """One more reading; what is shown from now on."""
        self._readings.append(reading)
        while reading.snapshot.time_s - self._readings[0].snapshot.time_s > SPAN_S:
            self._readings.popleft()
        return self.look(facts, reading.snapshot.time_s)

    def look(self, facts: Facts, now_s: float) -> tuple[Finding, ...]:
        """What is shown at a time at which no reading has come. now_s: monotonic."""
        self.window = Window(tuple(self._readings), facts, now_s)
        for finding in diagnose(self.window, self._rules):
            self._note(finding, now_s)
        for key, seen in tuple(self._seen.items()):
            gone_s = now_s - seen.last
            if gone_s >= (LEAVE_S if seen.shown else 1e-9):
                del self._seen[key]
        return self.findings

    def _note(self, finding: Finding, now_s: float) -> None:
        seen = self._seen.get(finding.key)
        if seen is None:
            seen = self._seen[finding.key] = _Seen(finding, now_s, now_s)
        seen.finding, seen.last = finding, now_s
        at_once = finding.level in ("fatal", "wrong") and finding.id in self._ids_at_once and finding.about != "repeats"
        seen.shown = seen.shown or at_once or now_s - seen.since >= ENTER_S

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is shown, MOST at most, the most important first."""
        shown = [one.finding for one in self._seen.values() if one.shown and one.finding.key not in self._dismissed]
        ranks = {rule.id: rank for rank, rule in reversed(tuple(enumerate(self._rules)))}
        return tuple(sorted(shown, key=lambda one: (ORDER.index(one.level), ranks.get(one.id, 0)))[:MOST])

    def dismiss(self, finding: Finding) -> None:
        """It is not shown again in this session."""
        self._dismissed.add(finding.key)

    def forget(self) -> None:
        """Another model or placement: what was seen before tells nothing of it. What was dismissed stays so."""
        self._readings.clear()
        self._seen.clear()
