"""MessageActions: the small buttons of a message and its branch switch. Buttons show on hover or while they have the keyboard."""

from __future__ import annotations

from PySide6.QtCore import QSize, QTimer, Signal
from PySide6.QtGui import QFocusEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.widgets import paint
from app.widgets.buttons import IconButton

SIDE = 26
_SWITCH_TEXT = 34
_CONFIRM_MS = 1500


class MessageActions(QWidget):
    """Emits the name of the action: copy, regenerate, telemetry, edit, delete; branch_requested carries -1 or +1."""

    action_requested = Signal(str)
    branch_requested = Signal(int)

    def __init__(self, actions: tuple[str, ...], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        texts = {
            "copy": ("copy", self.tr("Copy message")),
            "regenerate": ("refresh-cw", self.tr("Regenerate")),
            "telemetry": ("activity", self.tr("Show its telemetry")),
            "edit": ("pencil", self.tr("Edit")),
            "delete": ("trash-2", self.tr("Delete")),
        }
        self._position = (0, 1)
        self._back = _Revealed("chevron-left", self.tr("Previous branch"), self)
        self._forward = _Revealed("chevron-right", self.tr("Next branch"), self)
        self._back.clicked.connect(lambda: self.branch_requested.emit(-1))
        self._forward.clicked.connect(lambda: self.branch_requested.emit(1))
        self._buttons: dict[str, _Revealed] = {}
        self._icons = {action: texts[action][0] for action in actions}
        for action in actions:
            button = _Revealed(*texts[action], self)
            button.clicked.connect(lambda _checked=False, action=action: self.action_requested.emit(action))
            self._buttons[action] = button
        self._place()
        theme.hub().changed.connect(self.update)

    def set_position(self, position: tuple[int, int]) -> None:
        """(index from 0, count) among the branches; with one branch there is no switch."""
        if position != self._position:
            self._position = position
            self._back.setEnabled(position[0] > 0)
            self._forward.setEnabled(position[0] < position[1] - 1)
            self._place()
            self.update()

    def set_revealed(self, revealed: bool) -> None:
        """Show or hide the buttons; the switch is always shown."""
        for button in self._buttons.values():
            button.set_revealed(revealed)

    def set_offered(self, action: str, offered: bool) -> None:
        """Whether an action makes sense now."""
        self._buttons[action].setVisible(offered)
        self._place()

    def confirm(self, action: str) -> None:
        """Show a tick on a button."""
        button = self._buttons[action]
        button.set_icon("check", "ok")
        QTimer.singleShot(_CONFIRM_MS, button, lambda: button.set_icon(self._icons[action], "text3"))

    def sizeHint(self) -> QSize:
        n = sum(not button.isHidden() for button in self._buttons.values())
        return QSize(n * SIDE + (2 * 22 + _SWITCH_TEXT + 6 if self._position[1] > 1 else 0), SIDE)

    def _place(self) -> None:
        branches = self._position[1] > 1
        self._back.setVisible(branches)
        self._forward.setVisible(branches)
        self._back.set_revealed(True)
        self._forward.set_revealed(True)
        x = 0
        if branches:
            self._back.setGeometry(0, 2, 22, 22)
            self._forward.setGeometry(22 + _SWITCH_TEXT, 2, 22, 22)
            x = 44 + _SWITCH_TEXT + 6
        for button in self._buttons.values():
            if not button.isHidden():
                button.setGeometry(x, 0, SIDE, SIDE)
                x += SIDE
        self.resize(self.sizeHint())

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._position[1] > 1:
            painter = QPainter(self)
            paint.begin(painter)
            label = f"{self._position[0] + 1}/{self._position[1]}"
            paint.text(painter, 22 + _SWITCH_TEXT / 2, 17.3, label, 12, 500, "text2", "center")


class _Revealed(IconButton):
    def __init__(self, icon_name: str, text: str, parent: QWidget) -> None:
        super().__init__(icon_name, text, parent, size=SIDE, icon_size=14, color_token="text3")
        self._revealed = False
        self.setMinimumSize(0, 0)

    def set_revealed(self, revealed: bool) -> None:
        if revealed != self._revealed:
            self._revealed = revealed
            self.update()

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._revealed or self.hasFocus():
            super().paintEvent(event)
