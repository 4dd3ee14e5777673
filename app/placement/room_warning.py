"""RoomWarning: the strip at the foot of a column whose device has little room left, and what it would not hold any more."""

from __future__ import annotations

from PySide6.QtCore import QRectF
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.i18n import filled, tr
from app.widgets import paint
from app.widgets.format import exact_bytes, short_count
from app.widgets.icon import draw_icon
from engine.api.pure import DevicePrediction, Gpu

HEIGHT = 66
LONGER = 1.5
"""The context that is tried: half as long again."""
LEAST_SHARE = 1 / 20
"""Of a GPU: less than this is little, whatever lies on it."""


def little_room(there: DevicePrediction | None, n_ctx: int, *, would: bool) -> tuple[str, str]:
    """(what is free, what would not fit) of a GPU with little room; empty texts for others. would: after a drag, not now."""
    if there is None or there.over or not isinstance(there.device, Gpu) or not there.used:
        return "", ""
    free = there.capacity - there.used
    longer = int((LONGER - 1) * there.kv)
    if free >= max(longer, int(LEAST_SHARE * there.capacity)):
        return "", ""
    words = tr("Placement", "%1 would be free") if would else tr("Placement", "%1 free")
    tokens = short_count(int(LONGER * n_ctx))
    second = filled(tr("Placement", "%1 tokens would not fit"), tokens) if longer > free else tr("Placement", "It is almost full")
    return filled(words, exact_bytes(free)), second


class RoomWarning(QWidget):
    """Two lines; hidden where there is nothing to say."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._lines = ("", "")
        self.hide()
        theme.hub().changed.connect(self.update)

    @property
    def lines(self) -> tuple[str, str]:
        """What is said."""
        return self._lines

    def set_lines(self, lines: tuple[str, str]) -> None:
        """Say something else, or nothing."""
        if lines == self._lines:
            return
        self._lines = lines
        self.setAccessibleName(". ".join(lines))
        self.setVisible(bool(lines[0]))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.rounded(painter, QRectF(self.rect()), 8, theme.mixed("panel", "warn", 0.10))
        draw_icon(painter, "triangle-alert", 11, 13, 15, "warn")
        room = self.width() - 45
        paint.text(painter, 35, 25, self._lines[0], 12, 600, "warn", max_width=room)
        paint.text(painter, 35, 44, self._lines[1], 12, 400, "text2", max_width=room)
