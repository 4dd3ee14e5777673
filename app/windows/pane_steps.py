"""The step from one pane of a page to the next, by F6."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from app.chat.composer import Composer


def step_pane(panes: Sequence[QWidget], focused: QWidget | None, step: int) -> None:
    """The keyboard goes to the pane `step` further of those that can be seen."""
    seen = [pane for pane in panes if pane.isVisible()]
    at = next((i for i, pane in enumerate(seen) if pane is focused or (focused is not None and pane.isAncestorOf(focused))), 0)
    target = seen[(at + step) % len(seen)]
    if isinstance(target, Composer):
        target.focus()
        return
    target.setFocus(Qt.FocusReason.ShortcutFocusReason)
    if not target.hasFocus():
        target.focusNextChild()
