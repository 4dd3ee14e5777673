"""The picture that hangs at the pointer during a drag: the cards as a small stack, and how many they are."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPixmap

from app import theme
from app.placement.card_delegate import draw_card
from app.qtmodels.placement_rows import Row
from app.widgets import paint

HOT_SPOT = QPoint(70, 42)
"""Where the pointer holds the picture."""
_SHADOW, _ABOVE, _STEP, _HEIGHT = 12, 12, 6, 56


def drag_picture(row: Row, n_cards: int, width: float, ratio: float) -> QPixmap:
    """A card that stands for all, as wide as those of the board. ratio: device pixels per pixel."""
    n_below = min(2, n_cards - 1)
    size_x = width + 2 * _SHADOW + n_below * _STEP
    size_y = _HEIGHT + _ABOVE + _SHADOW + n_below * _STEP + 4
    picture = QPixmap(round(size_x * ratio), round(size_y * ratio))
    picture.setDevicePixelRatio(ratio)
    picture.fill(Qt.GlobalColor.transparent)
    painter = QPainter(picture)
    paint.begin(painter)
    box = QRectF(_SHADOW, _ABOVE, width, _HEIGHT)
    _shadow(painter, box.adjusted(0, 0, n_below * _STEP, n_below * _STEP))
    for step in range(n_below, 0, -1):
        paint.rounded(painter, box.translated(step * _STEP, step * _STEP), 8, "accent_dim", "accent")
    draw_card(painter, box, row, selected=True)
    if n_cards > 1:
        text = str(n_cards)
        wide = max(22.0, paint.text_width(text, 12, 700) + 12)
        badge = QRectF(box.right() - wide + 10, 1, wide, 20)
        paint.rounded(painter, badge, 10, "accent")
        paint.text(painter, badge.center().x(), 15.2, text, 12, 700, "on_accent", "center")
    painter.end()
    return picture


def _shadow(painter: QPainter, box: QRectF) -> None:
    painter.setPen(Qt.PenStyle.NoPen)
    for spread in range(_SHADOW, 0, -1):
        painter.setBrush(QColor(0, 0, 0, 7 if theme.current().is_dark else 3))
        rect = box.adjusted(-spread, 4 - spread, spread, 4 + spread * 0.6)
        painter.drawRoundedRect(rect, 8 + spread, 8 + spread)
