"""The report of the doctor as text for others: no names of users or computers, no folders of theirs, nothing of chats."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from app.doctor.rows import STATUSES, CheckView

_MARKS = {"fail": "FAIL", "warn": "WARN", "unknown": "????", "pass": "ok", "n/a": "n/a"}
_HOMES = re.compile(r"(/home|/Users|/var/home|/export/home|/media|/run/media)/[^/\s:;,'\")\]]+")
_SHORTEST_NAME = 3
"""Shorter names would be found inside of words that mean something else."""


@dataclass(frozen=True, slots=True)
class Private:
    """What must not leave: the home folder, the names of the user and of the computer, other folders of theirs."""

    home: str = ""
    user: str = ""
    host: str = ""
    folders: tuple[str, ...] = ()


def report_text(heading: Iterable[str], views: Iterable[CheckView], private: Private) -> str:
    """heading: lines of what is reported. Checks by group, the worst of each group first."""
    shown = tuple(views)
    lines = list(heading)
    for group in dict.fromkeys(view.group for view in shown):
        lines += ["", group]
        of_group = sorted((view for view in shown if view.group == group), key=lambda view: STATUSES.index(view.status))
        for view in of_group:
            lines.append(f"  {_MARKS[view.status]:<5}{view.id}  {view.title}: {view.observed}".rstrip(": "))
            lines += [f"       {line}" for line in view.evidence.splitlines()]
    return redacted("\n".join(lines) + "\n", private)


def redacted(text: str, private: Private) -> str:
    """The text without what is private. Also homes of other users and what is mounted for one."""
    for folder in sorted(filter(_is_folder, private.folders), key=len, reverse=True):
        text = text.replace(folder, "<folder>")
    if _is_folder(private.home):
        text = text.replace(private.home.rstrip("/"), "~")
    text = _HOMES.sub(r"\1/<user>", text)
    # The longer name first: a computer is often called after its user.
    for name, word in sorted(((private.user, "<user>"), (private.host, "<host>")), key=lambda pair: -len(pair[0])):
        if len(name) >= _SHORTEST_NAME and name not in ("root", "localhost"):
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", word, text, flags=re.IGNORECASE)
    return text


def _is_folder(path: str) -> bool:
    return len(path.rstrip("/")) > 1
