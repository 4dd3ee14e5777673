"""PlacementHistory: every state of the editor since a model was opened, to go back and forth in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QUndoCommand, QUndoStack

from app.ops.placement_cards import CardId
from engine.api.pure import Placement


@dataclass(frozen=True, slots=True)
class Draft:
    """What is edited: where everything shall lie, and which cards are held fast."""

    placement: Placement
    pins: frozenset[CardId] = frozenset()


class PlacementHistory(QObject):
    """shown(Draft) whenever another draft is the present one: after a step, undo and redo. changed() with it, and after start."""

    shown = Signal(object)
    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._stack = QUndoStack(self)
        self._draft: Draft | None = None

    @property
    def draft(self) -> Draft | None:
        """The present one; None before the start."""
        return self._draft

    def start(self, draft: Draft | None) -> None:
        """Forgets all steps; this draft is the first. Nothing is shown: who starts knows it."""
        self._stack.clear()
        self._draft = draft
        self.changed.emit()

    def step(self, text: str, draft: Draft) -> bool:
        """Shows another draft, as a step called `text`. False: it is no other."""
        if self._draft is None or draft == self._draft:
            return False
        self._stack.push(_Step(text, self._draft, draft, self._show))
        # Behind the step, not within it: only then are the texts of undo and redo those of the present draft.
        self.changed.emit()
        return True

    def undo(self) -> bool:
        """One step back. False: there is none."""
        if not self._stack.canUndo():
            return False
        self._stack.undo()
        self.changed.emit()
        return True

    def redo(self) -> bool:
        """One step forth. False: there is none."""
        if not self._stack.canRedo():
            return False
        self._stack.redo()
        self.changed.emit()
        return True

    @property
    def undo_text(self) -> str:
        """What `undo` takes back, as menus name it; empty: nothing."""
        return self._stack.undoText()

    @property
    def redo_text(self) -> str:
        """What `redo` does again; empty: nothing."""
        return self._stack.redoText()

    def _show(self, draft: Draft) -> None:
        self._draft = draft
        self.shown.emit(draft)


class _Step(QUndoCommand):
    def __init__(self, text: str, before: Draft, after: Draft, show: Callable[[Draft], None]) -> None:
        super().__init__(text)
        self._before, self._after, self._show = before, after, show

    def redo(self) -> None:
        self._show(self._after)

    def undo(self) -> None:
        self._show(self._before)
