"""MoveButtons: one button a device with its number key, to move the selected cards there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.widgets import paint
from app.widgets.painted_button import PaintedButton

_HEIGHT = 32
_GAP = 8
_STEP = _HEIGHT + 6


@dataclass(frozen=True, slots=True)
class Target:
    """A device cards can be moved to. reason: why they cannot, a sentence; here: they all lie there."""

    name: str
    reason: str = ""
    here: bool = False


class MoveButtons(QWidget):
    """Two columns in the order of the board. chosen(number of the target); those that refuse say why in their tooltip."""

    chosen = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._buttons: list[_MoveButton] = []
        self._targets: tuple[Target, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_targets(self, targets: Sequence[Target]) -> None:
        """Offer other devices."""
        fresh = tuple(targets)
        if fresh == self._targets:
            return
        self._targets = fresh
        while len(self._buttons) < len(fresh):
            number = len(self._buttons)
            button = _MoveButton(self)
            button.clicked.connect(lambda _checked=False, n=number: self.chosen.emit(n))
            self._buttons.append(button)
        for number, button in enumerate(self._buttons):
            button.setVisible(number < len(fresh))
            if number < len(fresh):
                button.show_target(fresh[number], str(number + 1) if number < 9 else "")
        self.setFixedHeight(self.sizeHint().height())
        self._place()

    def sizeHint(self) -> QSize:
        rows = (len(self._targets) + 1) // 2
        return QSize(236, max(0, rows * _STEP - 6))

    def _place(self) -> None:
        width = (self.width() - _GAP) // 2
        for number, button in enumerate(self._buttons):
            button.setGeometry((number % 2) * (width + _GAP), (number // 2) * _STEP, width, _HEIGHT)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()


class _MoveButton(PaintedButton):
    def __init__(self, parent: QWidget) -> None:
        super().__init__("", parent)
        self._keys = ""
        self._here = False

    def show_target(self, target: Target, keys: str) -> None:
        self._keys, self._here = keys, target.here
        self.setText(target.name)
        self.setAccessibleName(self.tr("Move to {device}").format(device=target.name))
        here = self.tr("All selected cards are there.") if target.here else ""
        self.setToolTip(target.reason or here)
        self.setAccessibleDescription(target.reason or here)
        self.setEnabled(not target.here and not target.reason)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        paint.rounded(
            painter, rect, 8, "overlay" if self.hovered and self.isEnabled() else "raised", "accent" if self._here else "line"
        )
        ink = "text" if self.isEnabled() or self._here else "text3"
        paint.text(painter, 12, 20.5, self.text(), 12, 600, ink, max_width=rect.width() - 46)
        if self._keys:
            paint.key_hint(painter, rect.width() - 10, 7.5, self._keys, "right")
        if self.focus_visible:
            paint.focus_ring(painter, rect, 8)
