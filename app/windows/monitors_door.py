"""MonitorsDoor: the door to the Monitors page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.actions.tables import MONITORS
from app.windows.page_door import PageDoor
from app.windows.parts import Parts

if TYPE_CHECKING:
    from app.windows.monitors_controller import MonitorsController


class MonitorsDoor(PageDoor["MonitorsController"]):
    """Makes the page with what its parts need. workers_requested(node): the cores of it that work."""

    workers_requested = Signal(int)

    def __init__(self, parts: Parts, parent: QObject | None = None) -> None:
        super().__init__(self._behind, MONITORS, parent)
        self._parts = parts

    def _behind(self, parent: QObject) -> MonitorsController:
        from app.windows.monitors_controller import MonitorsController
        from app.windows.monitors_facts import MonitorsFacts

        parts = self._parts
        facts = MonitorsFacts(parts.monitors, parts.bridge, parts.ui, parts.worker, parent=parent)
        controller = MonitorsController(parts.monitors, facts, parts.settings, parent)
        controller.page.board.workers_requested.connect(self.workers_requested)
        return controller
