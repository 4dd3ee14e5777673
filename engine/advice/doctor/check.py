"""What a check is and what it says: rows of the doctor. Values, and the few words that make them; `table` runs them.

A check reads and never changes anything. Its words are for people: numbers with units, why it matters in one line, and lines to
copy with what they change and how to undo it; nothing here is ever run by the program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from engine.advice.doctor.context import Context

Status = Literal["pass", "warn", "fail", "unknown", "n/a"]
"""fail: a model will not load, or results may be wrong. warn: slower than it could be. unknown: it cannot be read; never `fail`.
n/a: this machine has nothing that the check is about."""

SEVERITY: tuple[Status, ...] = ("n/a", "pass", "unknown", "warn", "fail")
"""Ascending."""


@dataclass(frozen=True, slots=True)
class Fix:
    """A line to copy. command: for a shell, or "" where the way is none, as in the firmware's menus. changes: what it changes,
    for how long. undo: the line or the way that takes it back."""

    command: str
    changes: str
    undo: str = ""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One row. observed: what was found, with units. why: why it matters, or why it is not known. evidence: what was read.

    ms: how long the check took, None where nobody measured.
    """

    id: str
    group: str
    title: str
    status: Status
    observed: str
    why: str
    fixes: tuple[Fix, ...] = ()
    evidence: str = ""
    ms: float | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """A row to be made. quick: takes milliseconds, needs no network, asks nobody; the others run when they are asked for."""

    id: str
    group: str
    title: str
    run: Callable[[Context], CheckResult | tuple[CheckResult, ...]]
    quick: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a row's reader finds: a CheckResult without the names of the row."""

    status: Status
    observed: str
    why: str = ""
    fixes: tuple[Fix, ...] = ()
    evidence: str = ""


Reader = Callable[[Context], Outcome]


def row(id: str, group: str, title: str, *, quick: bool = True) -> Callable[[Reader], Check]:
    """Makes a reader a row."""

    def made(reader: Reader) -> Check:
        def run(context: Context) -> CheckResult:
            found = reader(context)
            return CheckResult(id, group, title, found.status, found.observed, found.why, found.fixes, found.evidence)

        return Check(id, group, title, run, quick)

    return made


def passed(observed: str, why: str = "", *fixes: Fix, evidence: str = "") -> Outcome:
    """All is well, or it is worth knowing only."""
    return Outcome("pass", observed, why, fixes, evidence)


def warned(observed: str, why: str, *fixes: Fix, evidence: str = "") -> Outcome:
    """Slower than it could be."""
    return Outcome("warn", observed, why, fixes, evidence)


def failed(observed: str, why: str, *fixes: Fix, evidence: str = "") -> Outcome:
    """A model will not load, or results may be wrong."""
    return Outcome("fail", observed, why, fixes, evidence)


def unknown(why: str, evidence: str = "") -> Outcome:
    """It cannot be told here, and why not."""
    return Outcome("unknown", "not known", why, (), evidence)


def without_object(why: str) -> Outcome:
    """This machine has nothing of the kind."""
    return Outcome("n/a", "does not apply", why)


def worst(statuses: tuple[Status, ...]) -> Status:
    """The most severe of them; `n/a` of none."""
    return max(statuses, key=SEVERITY.index, default="n/a")


def count(n: int, what: str) -> str:
    """`1 core`, `2 cores`, `12,000 cores`."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def gb(n_bytes: float) -> str:
    """Bytes for people: `1.4 GB`, `640 MB`."""
    if abs(n_bytes) < 1e9:
        return f"{n_bytes / 1e6:.0f} MB"
    return f"{n_bytes / 1e9:.1f} GB" if abs(n_bytes) < 1e11 else f"{n_bytes / 1e9:,.0f} GB"


def listed(parts: tuple[str, ...] | list[str], most: int = 4) -> str:
    """`a; b; c`, and how many more there are."""
    shown = "; ".join(parts[:most])
    return shown if len(parts) <= most else f"{shown}; and {len(parts) - most} more"
