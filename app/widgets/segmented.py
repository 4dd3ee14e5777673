"""Segmented: one of a few values, side by side in one box; the arrow keys go from one to the next."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app import theme
from app.widgets import paint
from app.widgets.painted_button import PaintedButton

HEIGHT = 30
CELL = 48
_STEPS = {Qt.Key.Key_Right: 1, Qt.Key.Key_Down: 1, Qt.Key.Key_Left: -1, Qt.Key.Key_Up: -1}


class Segmented(QWidget):
    """chosen(key): the user took another one. items: (key, text)."""

    chosen = Signal(str)

    def __init__(self, items: Sequence[tuple[str, str]], name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._cells = {key: _Cell(text, self) for key, text in items}
        self._current = next(iter(self._cells))
        self.setFixedSize(len(self._cells) * CELL + 4, HEIGHT)
        self.setAccessibleName(name)
        row = QHBoxLayout(self)
        row.setContentsMargins(2, 2, 2, 2)
        row.setSpacing(0)
        for key, cell in self._cells.items():
            cell.setAccessibleDescription(name)
            cell.clicked.connect(lambda _on=False, key=key: self._take(key))
            cell.stepped.connect(self._step)
            row.addWidget(cell)
        self.set_current(self._current)
        theme.hub().changed.connect(self.update)

    @property
    def current(self) -> str:
        """The key that is marked."""
        return self._current

    def set_current(self, key: str) -> None:
        """Mark another one."""
        self._current = key
        for name, cell in self._cells.items():
            cell.setChecked(name == key)
            cell.setFocusPolicy(Qt.FocusPolicy.TabFocus if name == key else Qt.FocusPolicy.NoFocus)

    def _take(self, key: str) -> None:
        changed = key != self._current
        self.set_current(key)
        if changed:
            self.chosen.emit(key)

    def _step(self, step: int) -> None:
        keys = list(self._cells)
        key = keys[(keys.index(self._current) + step) % len(keys)]
        self._take(key)
        self._cells[key].setFocus(Qt.FocusReason.TabFocusReason)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.rounded(painter, QRectF(self.rect()), 8, "surface", None if theme.current().is_dark else "line")


class _Cell(PaintedButton):
    stepped = Signal(int)

    def __init__(self, text: str, parent: QWidget) -> None:
        super().__init__(text, parent)
        self.setCheckable(True)
        self.setFixedSize(CELL, HEIGHT - 4)

    def sizeHint(self) -> QSize:
        return QSize(CELL, HEIGHT - 4)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = _STEPS.get(Qt.Key(event.key()))
        if step is None:
            super().keyPressEvent(event)
        else:
            self.stepped.emit(step)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect, on = QRectF(self.rect()), self.isChecked()
        if on:
            paint.rounded(painter, rect, 7, "overlay")
        tone = "text" if on or self.hovered else "text2"
        paint.text(painter, rect.width() / 2, rect.height() / 2 + 4, self.text(), 12, 600 if on else 400, tone, "center")
        if self.focus_visible:
            paint.focus_ring(painter, rect, 7)
