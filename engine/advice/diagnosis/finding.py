"""What the diagnosis says: values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.placement.placement import Device, Placement

Level = Literal["fatal", "wrong", "external", "misplaced", "capacity", "note"]
"""fatal: nothing works until it is solved. wrong: results may be false. external: something outside the engine holds it up.
misplaced: the same machine can do more, arranged otherwise. capacity: its limit is reached. note: good to know, nothing is amiss.
"""

ORDER: tuple[Level, ...] = ("fatal", "wrong", "external", "misplaced", "capacity", "note")
"""What is said first comes first."""

Does = Literal[
    "none", "reload", "verify", "relieve", "rebalance", "replace", "make room", "tune", "pin", "repin", "doctor", "context"
]
"""What the button does. relieve: moves work off `device` onto cards, as a preview. rebalance: looks for the best placement, as a
preview. replace: sends what lies elsewhere to where the placement wants it. make room: moves work off the full card `device`,
as a preview. verify: reads the file and compares its checksum. tune, pin: the workers; repin: those of now, on the processors
that `target` lists. doctor: the check that `target` names."""

PREVIEWS: frozenset[Does] = frozenset({"relieve", "rebalance", "make room", "reload"})
"""These propose a placement and change nothing by themselves."""


@dataclass(frozen=True, slots=True)
class Action:
    """One button. text: its words, "" for none. device: what it is about, as `gpu1`; target: the id of a check, or processors."""

    does: Does = "none"
    text: str = ""
    device: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True)
class Gain:
    """A placement that is worth a look, and what the arithmetic expects of it.

    percent: decoded tokens a second more, at most what Amdahl's law leaves; spread: to either side, by how the readings scatter.
    n_units: how many move; device: where to; moved_bytes: of theirs. text: an imperative, as a step of the editor's history.
    """

    percent: float
    spread: float
    placement: Placement
    text: str
    n_units: int
    device: Device | None
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about what holds things up. id: of its rule; about: what tells it from others of its rule, as `gpu1`.

    why: the numbers and where they come from. gain: worked out later, None until then or where nothing is to be had.
    """

    id: str
    level: Level
    sentence: str
    why: str
    action: Action = Action()
    gain: Gain | None = None
    about: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Tells it from others while its numbers change."""
        return self.id, self.about

    @property
    def is_alarm(self) -> bool:
        """Whether something is amiss, which a limit that is reached is not."""
        return self.level not in ("capacity", "note")


def gain_sentence(gain: Gain) -> str:
    """`Move 6 more layers' experts to GPU 1 (5.1 GB free): about +18 %.`, with its spread where it is felt."""
    spread = f" (give or take {gain.spread:.0f} %)" if gain.spread >= 1 else ""
    return f"{gain.text}: about +{gain.percent:.0f} %{spread}."
