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
    "none",
    "relieve",
    "rebalance",
    "make room",
    "ease",
    "without",
    "place again",
    "load again",
    "pin",
    "repin",
    "tune",
    "context",
    "model",
    "doctor",
]
"""What the button does.

Previews of a placement: relieve: moves work off the memory node `device` onto cards; nbytes: so much of its memory is to become
free. rebalance: looks for the best placement. make room: frees nbytes of the card `device`. ease: gives the card `device` less to
do. without: what lies on `device`, which is gone, goes elsewhere.

place again: has the system move the weights' pages to the nodes that the placement names; nothing else changes. load again: loads
the model again. pin: the choice of workers, with `cpus` filled in. repin: the workers of now back on `cpus`. tune: tries numbers
of workers. context: the choice of a context, with n_ctx filled in. model: the choice of another model. doctor: the row `target`
of the checks."""

PREVIEWS: frozenset[Does] = frozenset({"relieve", "rebalance", "make room", "ease", "without"})
"""These propose a placement and change nothing by themselves."""


@dataclass(frozen=True, slots=True)
class Action:
    """One button. text: its words, "" for none. device: what it is about, as `gpu1`; target: the id of a check; cpus: as
    PinWorkers takes it. otherwise: what is offered where no placement can be proposed."""

    does: Does = "none"
    text: str = ""
    device: str = ""
    target: str = ""
    cpus: str = ""
    n_ctx: int = 0
    nbytes: int = 0
    otherwise: Action | None = None


@dataclass(frozen=True, slots=True)
class Gain:
    """A placement that is worth a look, and what the arithmetic expects of it.

    percent: tokens a second more, at most what Amdahl's law leaves, or less where it is negative; spread: to either side, by how
    the readings scatter. n_units: how many move; device: where to; moved_bytes: of theirs. text: an imperative, as a step of the
    editor's history. prompts: the percent are of reading prompts, not of decoding.
    """

    percent: float
    spread: float
    placement: Placement
    text: str
    n_units: int
    device: Device | None
    moved_bytes: int
    prompts: bool = False


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
    """`Move 6 more layers' experts to GPU 1 (5.1 GB free): about +18 %.`, with its spread where it is felt; a cost as `-4 %`."""
    if not gain.percent:
        return f"{gain.text}: about the same speed."
    spread = f" (give or take {gain.spread:.0f} %)" if gain.spread >= 1 else ""
    of = " in prompts" if gain.prompts else ""
    return f"{gain.text}: about {gain.percent:+.0f} %{spread}{of}."
