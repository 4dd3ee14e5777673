"""PlacementFix: what would make a placement fit that does not, looked for in the background."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.errors import UserFacingError
from app.ops.placement_moves import differing
from app.ops.placement_planning import PlacementPlanner
from app.ops.placement_worker import PlacementWorker
from engine.api.pure import Placement, UnitId


@dataclass(frozen=True, slots=True)
class Fix:
    """text: what to do, an imperative; cards: what moves, without the caches that go with it."""

    text: str
    placement: Placement
    cards: frozenset[UnitId]


class PlacementFix:
    """Of the placement that was looked at last."""

    def __init__(self, worker: PlacementWorker) -> None:
        self._worker = worker
        self._asked: Placement | None = None
        self._found: Fix | None = None

    def look(
        self, solver: PlacementPlanner, placement: Placement, then: Callable[[], None], failure: Callable[[UserFacingError], None]
    ) -> None:
        """Begins to look, unless this placement is the one that was looked at last. `then` is called when the end is known."""
        if placement == self._asked:
            return
        self._asked, self._found = placement, None

        def found(move: tuple[str, Placement] | None) -> None:
            if self._asked == placement:
                self._found = None if move is None else Fix(*move, differing(placement, move[1]))
                then()

        self._worker.search(lambda: solver.fix(placement), found, failure)

    def of(self, placement: Placement | None) -> Fix | None:
        """What to do about a placement; None: nothing helps, or it is not known yet."""
        return self._found if placement is not None and placement == self._asked else None
