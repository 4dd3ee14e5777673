"""GaugeCard: what all cards of the dashboard have in common: values that can be hovered, walked through by keyboard, and pinned.

A subclass paints, and says where its values stand. It is repainted only when what it shows has changed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QFocusEvent, QHelpEvent, QKeyEvent, QMouseEvent, QPainter
from PySide6.QtWidgets import QToolTip, QWidget

from app import theme
from app.bridge.throttle import Throttle
from app.monitors.reading import Reading
from app.widgets import paint
from app.widgets.painted_button import KEYBOARD_REASONS

DESCRIBE_MS = 5000
"""Who listens hears of changes this often at most."""
RADIUS = 12.0
_STEPS = {Qt.Key.Key_Right: 1, Qt.Key.Key_Down: 1, Qt.Key.Key_Left: -1, Qt.Key.Key_Up: -1}


class GaugeCard(QWidget):
    """pin_requested(key): the value was clicked, or Enter was pressed on it."""

    pin_requested = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._readings: tuple[Reading, ...] = ()
        self._pinned: frozenset[str] = frozenset()
        self._hovered: int | None = None
        self._current: int | None = None
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._describe = Throttle(DESCRIBE_MS, self._tell, self)
        theme.hub().changed.connect(self.update)

    # --- for subclasses ----------------------------------------------------------------------------------------------

    @abstractmethod
    def value_rects(self) -> Sequence[QRectF]:
        """Where each of the values stands, in their order."""

    def set_readings(self, title: str, readings: Sequence[Reading]) -> None:
        """The values of the card; its title is its name for those who listen."""
        self._readings = tuple(readings)
        if title != self.accessibleName():
            self.setAccessibleName(title)
        self._describe()

    def paint_frame(self, painter: QPainter, line: str = "line") -> None:
        """The box, and what marks the values under the pointer, under the keyboard, and pinned."""
        paint.begin(painter)
        paint.card(painter, QRectF(self.rect()), RADIUS, "surface", line)
        rects: Sequence[QRectF] | None = None
        if self._hovered is not None or self.focused_value is not None or self._pinned:
            rects = self.value_rects()
        if rects is None:
            return
        if self._hovered is not None and self._hovered < len(rects) and self._readings[self._hovered].key:
            paint.rounded(painter, rects[self._hovered], 7, "raised")
        for reading, rect in zip(self._readings, rects, strict=False):
            if reading.key and reading.key in self._pinned:
                paint.dot(painter, rect.x() + 1.5, rect.y() + 8, 2.0, "accent")
        focused = self.focused_value
        if focused is not None and focused < len(rects):
            paint.rounded(painter, rects[focused], 7, "raised", "accent", 2)

    def paint_focus(self, painter: QPainter) -> None:
        """The ring of the card that has the keyboard; last of all."""
        if self._current is not None and self.hasFocus():
            paint.focus_ring(painter, QRectF(self.rect()), RADIUS)

    # --- values ------------------------------------------------------------------------------------------------------

    @property
    def readings(self) -> tuple[Reading, ...]:
        """What the card says."""
        return self._readings

    def reading(self, label: str) -> Reading:
        """The value with this label. Raises KeyError."""
        for one in self._readings:
            if one.label == label:
                return one
        raise KeyError(label)

    @property
    def focused_value(self) -> int | None:
        """The value that the keyboard is at."""
        return self._current if self.hasFocus() and self._current is not None and self._current >= 0 else None

    def set_pinned(self, keys: frozenset[str]) -> None:
        """Which gauges stand in the side panel of the chat."""
        if keys != self._pinned:
            self._pinned = keys
            self.update()

    def _tell(self) -> None:
        text = ", ".join(reading.sentence for reading in self._readings)
        if text != self.accessibleDescription():
            self.setAccessibleDescription(text)

    def _at(self, position: QPointF) -> int | None:
        for i, rect in enumerate(self.value_rects()[: len(self._readings)]):
            if rect.contains(position):
                return i
        return None

    def tip(self, position: QPointF) -> str:
        """What is said of the place under the pointer; "" for nothing."""
        found = self._at(position)
        return "" if found is None else self.tip_of(self._readings[found])

    def tip_of(self, reading: Reading) -> str:
        """What is said of a value."""
        lines = [f"{reading.label}: {reading.text} {reading.unit}".rstrip(), reading.tip]
        if reading.key:
            pinned = reading.key in self._pinned
            lines.append(
                self.tr("Click: take it out of the chat's side panel") if pinned else self.tr("Click: pin it beside the chat")
            )
        return "\n".join(line for line in lines if line)

    # --- events ------------------------------------------------------------------------------------------------------

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            text = self.tip(QPointF(event.pos()))
            if text:
                QToolTip.showText(event.globalPos(), text, self)
            else:
                QToolTip.hideText()
            return True
        return super().event(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._hover(self._at(event.position()))

    def leaveEvent(self, event: QEvent) -> None:
        self._hover(None)

    def _hover(self, found: int | None) -> None:
        if found == self._hovered:
            return
        self._hovered = found
        chosen = found is not None and self.can_choose(found)
        self.setCursor(Qt.CursorShape.PointingHandCursor if chosen else Qt.CursorShape.ArrowCursor)
        self.update()

    def can_choose(self, index: int) -> bool:
        """Whether a click on the value does something."""
        return bool(self._readings[index].key)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        found = self._at(event.position())
        if event.button() == Qt.MouseButton.LeftButton and found is not None:
            self.choose(found, event.modifiers())

    def choose(self, index: int, modifiers: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        """What a click on a value or Enter there does: pins it."""
        if index < len(self._readings) and self._readings[index].key:
            self.pin_requested.emit(self._readings[index].key)

    def focusInEvent(self, event: QFocusEvent) -> None:
        self._current = -1 if event.reason() in KEYBOARD_REASONS else None
        self._describe()
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._current = None
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step, n = _STEPS.get(Qt.Key(event.key())), len(self._readings)
        if step is not None and n:
            at = -1 if self._current is None else self._current
            self._current = (at + step) % n if at >= 0 or step > 0 else n - 1
            self.setAccessibleDescription(self._readings[self._current].sentence)
            self.update()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self._current is not None and self._current >= 0:
            self.choose(self._current, event.modifiers())
        else:
            super().keyPressEvent(event)
