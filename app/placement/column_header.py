"""ColumnHeader: the head of a device's column: name, time of a token, how full it is, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize, Signal
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.ops.placement_planning import DeviceRow
from app.placement.capacity_bar import HEIGHT as BAR_HEIGHT
from app.placement.capacity_bar import draw_capacity
from app.placement.card_delegate import FADED
from app.widgets import paint
from app.widgets.buttons import IconButton, PushButton
from app.widgets.format import bytes_in_unit_of, exact_bytes
from app.widgets.icon import draw_icon
from engine.api.pure import DevicePrediction, Gpu, Numa

BASE = 72
_PAD, _NOTE_PAD, _LINE = 14, 10, 16
_BUTTON = 30
LEAST_MS = 0.05
"""What would be shown as nothing is not shown."""


@dataclass(frozen=True, slots=True)
class HeadState:
    """now: as it is; then: as it would be after the drag; note: why a drop is refused, or what else is wrong, a sentence.

    fix: what a button would do about it; dim: figures are being worked out.
    """

    row: DeviceRow
    now: DevicePrediction | None = None
    then: DevicePrediction | None = None
    note: str = ""
    fix: str = ""
    dim: bool = False

    @property
    def shown(self) -> DevicePrediction | None:
        """The figures to show."""
        return self.now if self.then is None else self.then


class ColumnHeader(QWidget):
    """fix_clicked() for the button below a note, workers_clicked(node) for that of a node. height_changed() when a note came
    or went."""

    fix_clicked = Signal()
    workers_clicked = Signal(int)
    height_changed = Signal()

    def __init__(self, row: DeviceRow, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = HeadState(row)
        self._button = PushButton("", kind="solid", parent=self, height=_BUTTON)
        self._button.clicked.connect(self.fix_clicked)
        self._button.hide()
        self.workers: IconButton | None = None
        if isinstance(row.device, Numa):
            node = row.device.node
            self.workers = IconButton("cpu", self.tr("Choose the cores that work"), self, size=26)
            self.workers.clicked.connect(lambda: self.workers_clicked.emit(node))
            self.workers.move(_PAD - 5, 10)
        self._name()
        theme.hub().changed.connect(self.update)

    @property
    def state(self) -> HeadState:
        """What is shown."""
        return self._state

    def set_state(self, state: HeadState) -> None:
        """Show something else."""
        if state == self._state:
            return
        before = self.wanted_height()
        self._state = state
        self._button.setVisible(bool(state.fix))
        if state.fix:
            self._button.set_content(state.fix, "", "", "solid")
            self._button.setToolTip(state.fix)
        self._place()
        self._name()
        if self.wanted_height() != before:
            self.height_changed.emit()
        self.update()

    def buttons(self) -> tuple[QWidget, ...]:
        """Those it has, shown or not."""
        return (self._button,) if self.workers is None else (self.workers, self._button)

    def wanted_height(self) -> int:
        """With a note and a button, where there are any."""
        height = BASE
        if self._state.note:
            height += len(self._note_lines()) * _LINE + 2 * _NOTE_PAD
        if self._state.fix:
            height += _BUTTON + 8
        return height + (8 if self._state.note or self._state.fix else 0)

    def sizeHint(self) -> QSize:
        return QSize(220, self.wanted_height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def _place(self) -> None:
        self._button.setGeometry(_PAD - 4, self.wanted_height() - _BUTTON - 8, max(40, self.width() - 2 * _PAD + 8), _BUTTON)

    def _name(self) -> None:
        """What is read aloud."""
        row, there = self._state.row, self._state.shown
        self.setAccessibleName(", ".join(part for part in (row.name, row.hardware) if part))
        parts = [self._state.note]
        if there is not None:
            parts = [self._used_text(there), self._right_text(there)[0], *parts]
        self.setAccessibleDescription(", ".join(part for part in parts if part))

    @staticmethod
    def _used_text(there: DevicePrediction) -> str:
        return f"{bytes_in_unit_of(there.used, there.capacity)} / {exact_bytes(there.capacity)}"

    def _right_text(self, there: DevicePrediction) -> tuple[str, str]:
        """What stands at the right of the name, and its colour."""
        if self._state.row.lost:
            return self.tr("gone"), "err"
        if there.over:
            return self.tr("{amount} over").format(amount=exact_bytes(there.over)), "err"
        if there.decode_ms < LEAST_MS:
            return "", "text2"
        return self.tr("{time} ms").format(time=f"{there.decode_ms:.1f}"), "text2"

    def _note_lines(self) -> list[str]:
        """The note, broken where the column ends."""
        metrics = QFontMetricsF(theme.font(12))
        room = max(60.0, self.width() - 2 * _PAD - 24)
        lines, line = [], ""
        for word in self._state.note.split():
            longer = f"{line} {word}".strip()
            if line and metrics.horizontalAdvance(longer) > room:
                lines.append(line)
                line = word
            else:
                line = longer
        return [*lines, line] if line else lines

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        state, right = self._state, self.width() - _PAD
        if state.dim or state.row.lost:
            painter.setOpacity(FADED)
        if isinstance(state.row.device, Gpu):
            draw_icon(painter, "microchip", _PAD, 15, 16, "text2")
        there = state.shown
        end, token = ("", "text2") if there is None else self._right_text(there)
        width = paint.text(painter, right, 27.5, end, 12, 600 if token == "err" else 500, token, "right")
        paint.text(painter, _PAD + 24, 27.5, state.row.name, 14, 600, "text", max_width=right - width - _PAD - 32)
        used = "" if there is None else self._used_text(there)
        ink = "err" if there is not None and there.over else "text"
        width = paint.text(painter, right, 48, used, 12, 500, ink, "right")
        paint.text(painter, _PAD, 48, state.row.hardware, 12, 400, "text3", max_width=right - width - _PAD - 10)
        bar = QRectF(_PAD, 58, self.width() - 2 * _PAD, BAR_HEIGHT)
        if state.now is not None:
            draw_capacity(painter, bar, state.now, state.then)
        painter.setOpacity(1)
        if state.note:
            self._paint_note(painter)

    def _paint_note(self, painter: QPainter) -> None:
        lines = self._note_lines()
        box = QRectF(_PAD - 4, BASE + 6, self.width() - 2 * _PAD + 8, len(lines) * _LINE + 2 * _NOTE_PAD - 6)
        paint.rounded(painter, box, 8, theme.color("err", 0.10))
        draw_icon(painter, "circle-alert", box.x() + 8, box.y() + 8, 14, "err")
        for i, line in enumerate(lines):
            paint.text(painter, box.x() + 28, box.y() + 19 + i * _LINE, line, 12, 400, "text")
