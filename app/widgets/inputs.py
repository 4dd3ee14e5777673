"""Inputs of forms in the look of the application: a switch, a choice with a chevron, number boxes with steppers."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QAbstractSpinBox, QCheckBox, QComboBox, QDoubleSpinBox, QSpinBox, QWidget

from app import theme
from app.widgets import paint
from app.widgets.buttons import IconButton
from app.widgets.icon import draw_icon

HEIGHT = 32
WIDTH = 168
_KNOB = 7
_STEPPERS = 24


class Switch(QCheckBox):
    """A check box drawn as a switch, without a text of its own."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFixedSize(self.sizeHint())
        theme.hub().changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(42, 26)

    def hitButton(self, position: QPoint) -> bool:
        return self.rect().contains(position)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        on = self.isChecked()
        track = QRectF(3, 3, 36, 20)
        paint.rounded(painter, track, 10, "accent" if on else "overlay", None if on else "line2")
        paint.dot(painter, 39 - 10 if on else 13, 13, _KNOB, "on_accent" if on else "text2")
        if self.hasFocus():
            paint.focus_ring(painter, QRectF(self.rect()), 12)


class Select(QComboBox):
    """One of a few values. The wheel scrolls the page, not the choice."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFixedSize(WIDTH, HEIGHT)
        theme.hub().changed.connect(self.update)

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        paint.rounded(painter, rect, 8, "overlay" if self.underMouse() else "raised", "line2")
        paint.text(painter, 12, rect.height() / 2 + 4.5, self.currentText(), 13, 500, max_width=rect.width() - 42)
        draw_icon(painter, "chevron-down", rect.width() - 25, rect.height() / 2 - 7, 14, "text2")
        if self.hasFocus():
            paint.focus_ring(painter, rect, 8)


class _Steppers:
    """The two small chevrons of a number box; the keyboard has the arrow keys."""

    def __init__(self, box: QAbstractSpinBox) -> None:
        self.buttons = (
            IconButton("chevron-up", box.tr("More"), box, size=14, icon_size=10, color_token="text3"),
            IconButton("chevron-down", box.tr("Less"), box, size=14, icon_size=10, color_token="text3"),
        )
        for button, step in zip(self.buttons, (box.stepUp, box.stepDown), strict=True):
            button.setAutoRepeat(True)
            button.setFocusPolicy(Qt.FocusPolicy.NoFocus)
            button.setToolTip("")
            button.clicked.connect(step)
        box.setFixedSize(WIDTH, HEIGHT)
        box.setKeyboardTracking(False)
        box.lineEdit().setTextMargins(3, 0, _STEPPERS, 0)

    def place(self, box: QAbstractSpinBox) -> None:
        """At the right end."""
        for i, button in enumerate(self.buttons):
            button.move(box.width() - _STEPPERS, 2 + i * 14)


class WholeBox(QSpinBox):
    """A whole number."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._steppers = _Steppers(self)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._steppers.place(self)

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class RealBox(QDoubleSpinBox):
    """A number with two digits after the point."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setDecimals(2)
        self._steppers = _Steppers(self)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._steppers.place(self)

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class Card(QWidget):
    """A framed surface for the rows of a form, with a line between each two. Rows are added to `rows` by the caller's layout."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows: list[QWidget] = []
        theme.hub().changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.rounded(painter, QRectF(self.rect()), 12, "surface", "line")
        shown = [row for row in self.rows if not row.isHidden()]
        for row in shown[1:]:
            paint.line(painter, 18, row.y() - 0.5, self.width() - 18, row.y() - 0.5)
