"""DragPreview: the box below the pointer during a drag: what the drop would do to speed and room."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.i18n import filled, tr
from app.ops.placement_planning import device_name
from app.widgets import paint
from app.widgets.format import bytes_in_unit_of, exact_bytes, rate_text
from engine.api.pure import Device, Prediction

Line = tuple[str, str, int]
"""(text, colour token, weight)."""
_BELOW = QPoint(-50, 58)
_PAD, _LINE, _MOST = 12, 19, 340


def preview_lines(now: Prediction, then: Prediction, device: Device) -> tuple[Line, ...]:
    """`Decode 12.1 -> 12.9 tok/s` and `GPU 1: 17.9 -> 22.7 of 24 GB`, with arrows."""
    before, after = rate_text(now.decode_tok_s), rate_text(then.decode_tok_s)
    tone = "text2" if before == after else "ok" if then.decode_tok_s > now.decode_tok_s else "warn"
    there, would = now.of(device), then.of(device)
    speed = filled(tr("Placement", "Decode %1 → %2 tok/s"), before, after)
    room = filled(
        tr("Placement", "%1: %2 → %3 of %4"),
        device_name(device),
        bytes_in_unit_of(there.used, there.capacity),
        bytes_in_unit_of(would.used, would.capacity),
        exact_bytes(would.capacity),
    )
    lines: list[Line] = [(speed, tone, 600), (room, "err" if would.over else "text2", 400)]
    if would.over:
        lines.append((filled(tr("Placement", "%1 over"), exact_bytes(would.over)), "err", 600))
    return tuple(lines)


class DragPreview(QWidget):
    """It lies over the board and takes no part in the drag."""

    def __init__(self, board: QWidget) -> None:
        super().__init__(board)
        self._board = board
        self._lines: tuple[Line, ...] = ()
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()
        theme.hub().changed.connect(self.update)

    @property
    def lines(self) -> tuple[Line, ...]:
        """What is said."""
        return self._lines if self.isVisible() else ()

    def show_at(self, pointer: QPoint, lines: tuple[Line, ...]) -> None:
        """Shows lines below the pointer, inside the board."""
        if lines != self._lines:
            self._lines = lines
            self.setAccessibleName(", ".join(text for text, _, _ in lines))
            widest = max(paint.text_width(text, 12, weight) for text, _, weight in lines)
            self.resize(min(_MOST, max(180, round(widest + 2 * _PAD + 12))), _LINE * len(lines) + 2 * _PAD - 8)
            self.update()
        room = self._board.size() - self.size()
        at = pointer + _BELOW
        if at.y() > room.height():
            at.setY(pointer.y() - self.height() - 50)
        self.move(max(0, min(at.x(), room.width())), max(0, at.y()))
        self.raise_()
        self.show()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.rounded(painter, QRectF(self.rect()), 9, "bg", "line2")
        for i, (text, token, weight) in enumerate(self._lines):
            paint.text(painter, _PAD, 22 + i * _LINE, text, 12, weight, token, max_width=self.width() - 2 * _PAD)
