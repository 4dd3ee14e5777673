"""PlacementDoor: the door to the placement page; it also hands models to it that are to be planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.actions.tables import PLACEMENT
from app.windows.page_door import PageDoor
from app.windows.parts import Parts

if TYPE_CHECKING:
    from app.windows.placement_controller import PlacementController


class PlacementDoor(PageDoor["PlacementController"]):
    """pick_requested(): choose a model to place. workers_requested(node): choose the cores that work."""

    pick_requested = Signal()
    workers_requested = Signal(int)

    def __init__(self, parts: Parts, parent: QObject | None = None) -> None:
        super().__init__(self._behind, PLACEMENT, parent)
        self._parts = parts

    def _behind(self, parent: QObject) -> PlacementController:
        from app.windows.placement_controller import PlacementController
        from app.windows.placement_parts import make_placement

        parts = self._parts
        below = make_placement(parts.store, parts.bridge, parts.models, parts.ui, parts.worker, calibrate=parts.calibrate)
        controller = PlacementController(below, parent)
        controller.pick_requested.connect(self.pick_requested)
        controller.board.workers_requested.connect(self.workers_requested)
        return controller

    def plan(self, path: str) -> None:
        """Plans a model."""
        self.controller().open(path)
