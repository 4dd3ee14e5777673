"""Actions: rows of a table become QActions with their shortcuts, the entries of the palette, and the page of shortcuts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QWidget

from app.i18n import tr

Condition = Literal[
    "always",
    "chat_open",
    "answer_shown",
    "can_stop",
    "model_loaded",
    "placement_shown",
    "placement_pending",
    "monitors_shown",
    "doctor_shown",
]
Group = Literal["File", "Chat", "Model", "Placement", "Monitors", "Doctor", "View", "Help"]


@dataclass(frozen=True, slots=True)
class ActionRow:
    """id names the handler. enabled_when: the condition of the window that must hold. in_palette: offered by Ctrl+K."""

    id: str
    text: str
    group: Group
    shortcut: str = ""
    enabled_when: Condition = "always"
    in_palette: bool = True


class ActionRegistry(QObject):
    """The QActions of one window, made from the rows and a handler for each id."""

    def __init__(self, window: QWidget, rows: Iterable[ActionRow], handlers: Mapping[str, Callable[[], object]]) -> None:
        super().__init__(window)
        self.rows = tuple(rows)
        self._actions: dict[str, QAction] = {}
        for row in self.rows:
            action = QAction(tr("Actions", row.text), self)
            action.setObjectName(row.id)
            if row.shortcut:
                action.setShortcut(QKeySequence(row.shortcut))
            action.setShortcutContext(Qt.ShortcutContext.WindowShortcut)
            # triggered carries `checked`, which handlers do not take.
            action.triggered.connect(lambda _checked=False, run=handlers[row.id]: run())
            window.addAction(action)
            self._actions[row.id] = action
        self.set_conditions(frozenset())

    def action(self, action_id: str) -> QAction:
        """The action of a row."""
        return self._actions[action_id]

    def has(self, action_id: str) -> bool:
        """Whether there is such a row."""
        return action_id in self._actions

    def set_conditions(self, holding: frozenset[Condition]) -> None:
        """Enables the actions whose condition holds; `always` does."""
        for row in self.rows:
            self._actions[row.id].setEnabled(row.enabled_when == "always" or row.enabled_when in holding)

    def offered(self) -> tuple[QAction, ...]:
        """The actions that the palette offers now."""
        return tuple(self._actions[row.id] for row in self.rows if row.in_palette and self._actions[row.id].isEnabled())


def shortcut_text(row: ActionRow) -> str:
    """The keys of a row as people read them."""
    return QKeySequence(row.shortcut).toString(QKeySequence.SequenceFormat.NativeText)
