"""Reading: one value of a card as it is written, with what is said about it. Values only."""

from __future__ import annotations

from dataclasses import dataclass

NOT_KNOWN = "n/a"


@dataclass(frozen=True, slots=True)
class Reading:
    """`Power`, `148 / 450 W`. tip: what the value means, or why there is none; tone: its colour token.

    key: of its gauge in a Timeline, by which it can be pinned; "": it cannot. spoken: how it is read aloud, where that differs
    from `text`.
    """

    label: str
    text: str
    unit: str = ""
    tip: str = ""
    key: str = ""
    tone: str = "text"
    spoken: str = ""

    @property
    def is_known(self) -> bool:
        """Whether there is a value."""
        return self.text != NOT_KNOWN

    @property
    def sentence(self) -> str:
        """For those who listen: `Power 148 / 450 W`, or why there is none."""
        said = self.spoken or " ".join(part for part in (self.text, self.unit) if part)
        return f"{self.label} {said}" if self.is_known or not self.tip else f"{self.label} {said}: {self.tip}"


def unknown(label: str, reason: str) -> Reading:
    """A value that cannot be had, and why."""
    return Reading(label, NOT_KNOWN, tip=reason, tone="text3")
