"""PlacementDoor: makes the placement page when it is first asked for: a window that never shows it imports nothing for it.

The arithmetic behind the page imports numpy and half of the engine, which must not delay the first frame.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app.actions.registry import Condition
from app.actions.tables import PLACEMENT
from app.widgets.toast import Toast
from app.windows.parts import Parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.windows.placement_controller import PlacementController


class PlacementDoor(QObject):
    """The signals of PlacementController; made(QWidget): the page is there from now on."""

    notice = Signal(str)
    pick_requested = Signal()
    shown_changed = Signal()
    made = Signal(object)

    def __init__(self, parts: Parts, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._parts = parts
        self._controller: PlacementController | None = None

    def controller(self) -> PlacementController:
        """The controller of the page, made now if it was not yet."""
        if self._controller is None:
            from app.windows.placement_controller import PlacementController
            from app.windows.placement_parts import make_placement

            parts = self._parts
            below = make_placement(parts.store, parts.bridge, parts.models, parts.ui, parts.worker)
            self._controller = made = PlacementController(below, self)
            made.notice.connect(self.notice)
            made.pick_requested.connect(self.pick_requested)
            made.shown_changed.connect(self.shown_changed)
            self.made.emit(made.page)
        return self._controller

    def open(self, path: str) -> None:
        """Plans a model."""
        self.controller().open(path)

    def shown(self, on: bool) -> None:
        """The page came into sight or left it."""
        if on or self._controller is not None:
            self.controller().shown(on)

    def is_page(self, widget: QWidget | None) -> bool:
        """Whether a widget is the page."""
        return self._controller is not None and widget is self._controller.page

    @property
    def toast(self) -> Toast:
        """Of the page. Only once it was shown."""
        return self.controller().page.toast

    def handlers(self) -> dict[str, Callable[[], object]]:
        """What the actions of the page do, by their ids."""
        return {row.id: partial(self._run, row.id) for row in PLACEMENT}

    def conditions(self) -> set[Condition]:
        """Which of them can be done while the page is shown."""
        return self.controller().conditions()

    def _run(self, action_id: str) -> None:
        self.controller().handlers()[action_id]()
