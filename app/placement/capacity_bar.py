"""The bar of a device: what lies on it by kind, and what a drag would add, hatched in its colour."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPainterPath, QPen

from app import theme
from app.widgets import paint
from engine.api.pure import DevicePrediction

HEIGHT = 8.0
_KINDS = (("attention", "attn"), ("ffn", "ffn"), ("experts", "experts"), ("kv", "kv"), ("buffers", "buffers"))
"""Fields of a prediction and their colours, from the left."""


def segments(there: DevicePrediction) -> tuple[tuple[float, str], ...]:
    """(share of the capacity, colour token) by kind; what is over the capacity is squeezed into the bar."""
    whole = max(1, there.capacity, there.used)
    return tuple((getattr(there, field) / whole, token) for field, token in _KINDS if getattr(there, field))


def draw_capacity(painter: QPainter, rect: QRectF, now: DevicePrediction, then: DevicePrediction | None = None) -> None:
    """The bar as it is; `then`: as it would be. What comes is hatched behind it, what goes is hatched in its place."""
    shown = now if then is None or then.used >= now.used else then
    more = None if then is None or then.used == now.used else (then if then.used > now.used else now)
    paint.bar(painter, rect, segments(shown))
    if more is None:
        return
    whole = max(1, more.capacity, more.used)
    filled = sum(getattr(shown, field) for field, _ in _KINDS) / max(1, shown.capacity, shown.used)
    left = rect.x() + rect.width() * filled
    token = max(_KINDS, key=lambda kind: getattr(more, kind[0]) - getattr(shown, kind[0]))[1]
    width = rect.width() * (more.used - shown.used) / whole
    spot = QRectF(left, rect.y(), max(2.0, min(width, rect.right() - left)), rect.height())
    clip = QPainterPath()
    clip.addRoundedRect(rect, rect.height() / 2, rect.height() / 2)
    painter.save()
    painter.setClipPath(clip)
    painter.fillRect(spot, theme.color(token, 0.5 if more is then else 0.2))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(QPen(theme.color(token), 1))
    painter.drawRect(spot.adjusted(0.5, 0.5, -0.5, -0.5))
    painter.restore()
