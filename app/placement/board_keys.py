"""Keys of the board: everything that the mouse does, from the keyboard. A table from keys to what they ask for."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent

BoardKey = Literal[
    "auto fit",
    "expand",
    "group",
    "pin",
    "nodes",
    "filter",
    "apply",
    "undo",
    "redo",
    "select group",
    "clear",
    "left",
    "right",
    "toggle",
]
_SHIFT, _CTRL, _NONE = Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.NoModifier
_KEYS: dict[tuple[Qt.KeyboardModifier, int], BoardKey] = {
    (_NONE, Qt.Key.Key_A): "auto fit",
    (_NONE, Qt.Key.Key_E): "expand",
    (_NONE, Qt.Key.Key_G): "group",
    (_NONE, Qt.Key.Key_P): "pin",
    (_NONE, Qt.Key.Key_N): "nodes",
    (_NONE, Qt.Key.Key_Slash): "filter",
    (_SHIFT, Qt.Key.Key_Slash): "filter",
    (_CTRL, Qt.Key.Key_Return): "apply",
    (_CTRL, Qt.Key.Key_Enter): "apply",
    (_CTRL, Qt.Key.Key_Z): "undo",
    (_CTRL | _SHIFT, Qt.Key.Key_Z): "redo",
    (_CTRL, Qt.Key.Key_Y): "redo",
    (_CTRL, Qt.Key.Key_A): "select group",
    (_NONE, Qt.Key.Key_Escape): "clear",
    (_NONE, Qt.Key.Key_Left): "left",
    (_NONE, Qt.Key.Key_Right): "right",
    (_NONE, Qt.Key.Key_Return): "toggle",
    (_NONE, Qt.Key.Key_Enter): "toggle",
}
"""On layouts where the slash needs Shift, Shift comes with it."""


def key_of(event: QKeyEvent) -> BoardKey | int | None:
    """What a key asks for; 1 to 9: that device; None: nothing of the board's."""
    modifiers = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
    if modifiers == _NONE and Qt.Key.Key_1 <= event.key() <= Qt.Key.Key_9:
        return int(event.key()) - int(Qt.Key.Key_0)
    return _KEYS.get((modifiers, event.key()))
