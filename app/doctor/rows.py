"""What the doctor's page shows of checks: rows as plain values, how each state looks, and what may be said about all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from app.i18n import filled, tr

Status = Literal["fail", "warn", "unknown", "pass", "n/a"]
STATUSES: tuple[Status, ...] = ("fail", "warn", "unknown", "pass", "n/a")
"""The worst first."""
ICONS: Mapping[Status, str] = {
    "fail": "circle-alert",
    "warn": "triangle-alert",
    "unknown": "circle-question-mark",
    "pass": "circle-check",
    "n/a": "circle-minus",
}
TONES: Mapping[Status, str] = {"fail": "err", "warn": "warn", "unknown": "text2", "pass": "ok", "n/a": "text3"}


@dataclass(frozen=True, slots=True)
class FixView:
    """A line to copy, what it changes, and how to undo that."""

    command: str
    changes: str
    undo: str = ""


@dataclass(frozen=True, slots=True)
class CheckView:
    """One row. observed: what was found; why: what it matters for, one sentence; evidence: where it was read, line by line."""

    id: str
    group: str
    title: str
    status: Status
    observed: str
    why: str
    fixes: tuple[FixView, ...] = ()
    evidence: str = ""


def status_text(status: Status) -> str:
    """The state as a word."""
    return {
        "fail": tr("Doctor", "Problem"),
        "warn": tr("Doctor", "Warning"),
        "unknown": tr("Doctor", "Not known"),
        "pass": tr("Doctor", "Fine"),
        "n/a": tr("Doctor", "Does not apply"),
    }[status]


def counted(status: Status, n: int) -> str:
    """`2 warnings`."""
    return {
        "fail": tr("Doctor", "%n problem(s)", n),
        "warn": tr("Doctor", "%n warning(s)", n),
        "unknown": tr("Doctor", "%n not known", n),
        "pass": tr("Doctor", "%n fine", n),
        "n/a": tr("Doctor", "%n that do not apply", n),
    }[status].replace("(s)", "" if n == 1 else "s")


def worst(rows: Iterable[CheckView]) -> Status:
    """Of all rows that say something; `pass` when none does."""
    found = {row.status for row in rows} - {"n/a"}
    return next((status for status in STATUSES if status in found), "pass")


@dataclass(frozen=True, slots=True)
class Summary:
    """What stands above the rows. tone: a colour token; link: the words that lead to the worst row, empty for none."""

    icon: str
    tone: str
    title: str
    line: str
    link: str = ""


def summary(rows: Iterable[CheckView], when: str, n_done: int | None = None, n_total: int = 0) -> Summary:
    """when: the time of the last run as a sentence, empty before the first. n_done: of n_total while a run is under way."""
    shown = tuple(rows)
    counts = Counter(row.status for row in shown)
    line = ", ".join(counted(status, counts[status]) for status in STATUSES if counts[status])
    if n_done is not None:
        progress = filled(tr("Doctor", "%1 of %2 checks"), n_done, n_total)
        return Summary("search", "accent", tr("Doctor", "Looking at this machine…"), " · ".join(p for p in (progress, line) if p))
    if not shown:
        return Summary("search", "text2", tr("Doctor", "Nothing was checked yet"), tr("Doctor", "Run the checks with F5."))
    line = " · ".join(part for part in (line, when) if part)
    state = worst(shown)
    if state == "fail":
        title = tr("Doctor", "%n problem(s) to solve", counts["fail"]).replace("(s)", "" if counts["fail"] == 1 else "s")
    elif state == "warn":
        title = tr("Doctor", "It works, but slower or less safely than it could")
    elif state == "unknown":
        title = tr("Doctor", "Nothing is wrong as far as could be seen")
    else:
        title = tr("Doctor", "Everything that was checked is as it should be")
    link = "" if state == "pass" else tr("Doctor", "Show it") if counts[state] == 1 else tr("Doctor", "Show them")
    return Summary(ICONS[state], TONES[state], title, line, link)
