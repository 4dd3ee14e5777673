"""PlacementFix: what would make a placement fit that does not, looked for in the background."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal

from app.ops.placement_cards import CardId
from app.ops.placement_history import Draft
from app.ops.placement_moves import differing
from app.ops.placement_planning import PlacementPlanner
from app.ops.placement_worker import PlacementWorker
from engine.api.pure import Device, Placement, UnitId

PAUSE_MS = 200


@dataclass(frozen=True, slots=True)
class Fix:
    """text: what to do, an imperative; cards: what moves, without the caches that go with it."""

    text: str
    placement: Placement
    cards: frozenset[CardId]


class PlacementFix(QObject):
    """found() when it is known what to do about the placement that was asked about last, or that nothing is."""

    found = Signal()
    failed = Signal(str)

    def __init__(self, worker: PlacementWorker, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._worker = worker
        self._solver: Callable[[], PlacementPlanner] | None = None
        self._asked: tuple[Placement, frozenset[CardId], frozenset[Device]] | None = None
        self._fix: Fix | None = None
        # A search keeps Python busy on its own thread, and the next drag would feel it: it waits until the user pauses.
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(PAUSE_MS)
        self._pause.timeout.connect(self._begin)

    def look(self, solver: Callable[[], PlacementPlanner], draft: Draft, lost: frozenset[Device]) -> None:
        """Begins to look, soon; not again for what was asked about last. What is pinned stays. solver: makes who searches,
        without what is lost."""
        asked = draft.placement, draft.pins, lost
        if asked != self._asked:
            self._solver, self._asked, self._fix = solver, asked, None
            self._pause.start()

    def forget(self) -> None:
        """No search is begun any more."""
        self._pause.stop()
        self._asked = self._fix = None

    def of(self, placement: Placement | None) -> Fix | None:
        """What to do about a placement; None: nothing helps, or it is not known yet."""
        return self._fix if placement is not None and self._asked is not None and placement == self._asked[0] else None

    def _begin(self) -> None:
        solver, asked = self._solver, self._asked
        if solver is None or asked is None:
            return
        placement, pins, _ = asked
        held = frozenset(one for one in pins if isinstance(one, UnitId))

        def found(move: tuple[str, Placement] | None) -> None:
            if asked == self._asked:
                self._fix = None if move is None else Fix(*move, differing(placement, move[1]))
                self.found.emit()

        self._worker.search(lambda: solver().fix(placement, held), found, lambda error: self.failed.emit(str(error)))
