"""PlacementFix: what would make a placement fit that does not, looked for in the background."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal

from app.ops.placement_cards import CardId
from app.ops.placement_moves import differing
from app.ops.placement_planning import PlacementPlanner
from app.ops.placement_worker import PlacementWorker
from engine.api.pure import Placement

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
        self._solver: PlacementPlanner | None = None
        self._asked: Placement | None = None
        self._fix: Fix | None = None
        # A search keeps Python busy on its own thread, and the next drag would feel it: it waits until the user pauses.
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(PAUSE_MS)
        self._pause.timeout.connect(self._begin)

    def look(self, solver: PlacementPlanner, placement: Placement) -> None:
        """Begins to look, soon; not again for the placement that was asked about last."""
        if placement != self._asked:
            self._solver, self._asked, self._fix = solver, placement, None
            self._pause.start()

    def forget(self) -> None:
        """No search is begun any more."""
        self._pause.stop()
        self._asked = self._fix = None

    def of(self, placement: Placement | None) -> Fix | None:
        """What to do about a placement; None: nothing helps, or it is not known yet."""
        return self._fix if placement is not None and placement == self._asked else None

    def _begin(self) -> None:
        solver, placement = self._solver, self._asked
        if solver is not None and placement is not None:
            self._worker.search(
                lambda: solver.fix(placement),
                lambda move: self._on_found(placement, move),
                lambda error: self.failed.emit(str(error)),
            )

    def _on_found(self, placement: Placement, move: tuple[str, Placement] | None) -> None:
        if placement == self._asked:
            self._fix = None if move is None else Fix(*move, differing(placement, move[1]))
            self.found.emit()
