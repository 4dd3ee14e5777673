"""PlacementPreview: shows a placement that somebody else proposes in the editor: a step that undo takes back, never applied."""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.ops.placement_desk import PlacementDesk
from app.ops.placement_planning import DeskState
from engine.api.values import Placement


class PlacementPreview(QObject):
    """Waits until the desk has read the model."""

    def __init__(self, desk: PlacementDesk, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._desk = desk
        self._waiting: tuple[str, Placement, str] | None = None
        desk.state_changed.connect(self._on_state)
        desk.outline_changed.connect(self._on_state)

    def show(self, path: str, placement: Placement, text: str) -> None:
        """The placement of the model at `path`, as soon as it is open; text: the step's name in the history."""
        self._waiting = path, placement, text
        self._on_state(self._desk.state)

    def _on_state(self, _state: DeskState | None = None) -> None:
        if self._waiting is None or self._desk.state not in ("ready", "does not fit") or self._desk.placement is None:
            return
        path, placement, text = self._waiting
        if self._desk.path == path:
            self._waiting = None
            self._desk.set_placement(placement, text)
