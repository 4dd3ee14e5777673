"""PageDoor: makes a page when it is first asked for: a window that never shows it imports nothing for it.

What stands behind such a page imports numpy and half of the engine, which must not delay the first frame.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QWidget

from app.actions.registry import ActionRow, Condition
from app.widgets.toast import Toast


class PageController(QObject):
    """What a door wants of the controller of its page. notice(sentence); shown_changed() when other actions can be done."""

    notice = Signal(str)
    shown_changed = Signal()

    @property
    @abstractmethod
    def view(self) -> QWidget:
        """The page."""

    @property
    @abstractmethod
    def toast(self) -> Toast:
        """Where a sentence is shown on the page."""

    def shown(self, on: bool) -> None:
        """The page came into sight or left it."""

    def handlers(self) -> dict[str, Callable[[], object]]:
        """What the actions of the page do, by their ids."""
        return {}

    def conditions(self) -> set[Condition]:
        """Which actions can be done while the page is shown."""
        return set()


Controller = TypeVar("Controller", bound=PageController)


class PageDoor(QObject, Generic[Controller]):
    """The signals of PageController; made(QWidget): the page is there from now on. make: the controller, asked for once."""

    notice = Signal(str)
    shown_changed = Signal()
    made = Signal(object)

    def __init__(
        self, make: Callable[[QObject], Controller], actions: Sequence[ActionRow] = (), parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._make = make
        self._actions = tuple(actions)
        self._controller: Controller | None = None

    def controller(self) -> Controller:
        """The controller of the page, made now if it was not yet."""
        if self._controller is None:
            self._controller = made = self._make(self)
            made.notice.connect(self.notice)
            made.shown_changed.connect(self.shown_changed)
            self.made.emit(made.view)
        return self._controller

    def focus(self) -> None:
        """The keyboard goes to the page."""
        self.controller().view.setFocus(Qt.FocusReason.OtherFocusReason)

    def shown(self, on: bool) -> None:
        """The page came into sight or left it."""
        if on or self._controller is not None:
            self.controller().shown(on)

    def is_page(self, widget: QWidget | None) -> bool:
        """Whether a widget is the page."""
        return self._controller is not None and widget is self._controller.view

    @property
    def toast(self) -> Toast:
        """Of the page. Only once it was shown."""
        return self.controller().toast

    def handlers(self) -> dict[str, Callable[[], object]]:
        """What the actions of the page do, by their ids."""
        return {row.id: partial(self._run, row.id) for row in self._actions}

    def conditions(self) -> set[Condition]:
        """Which of them can be done while the page is shown."""
        return self.controller().conditions()

    def _run(self, action_id: str) -> None:
        self.controller().handlers()[action_id]()
