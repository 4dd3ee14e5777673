"""The few strokes that every painted widget is made of: boxes, one line of text, key hints, dots, bars, the brand tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QLinearGradient, QPainter, QPainterPath, QPen

from app import theme
from app.widgets.icon import draw_icon

Align = Literal["left", "right", "center"]
_ON_ACCENT = QColor("#5962D6")
_TILE = (("#8E97FF", 0.0), ("#5B5FE0", 1.0))


def text_width(text: str, px: float, weight: int = 400, mono: bool = False) -> float:
    """Advance of one line of text in the interface or code font."""
    return QFontMetricsF(theme.font(px, weight, mono)).horizontalAdvance(text)


def begin(painter: QPainter) -> None:
    """Smooth edges and text for a painter just opened on a widget."""
    painter.setRenderHints(
        QPainter.RenderHint.Antialiasing | QPainter.RenderHint.TextAntialiasing | QPainter.RenderHint.SmoothPixmapTransform
    )


def rounded(
    painter: QPainter,
    rect: QRectF,
    radius: float = 8,
    fill: str | QColor | None = None,
    line: str | None = None,
    width: float = 1,
) -> None:
    """A rounded box; with a line the stroke lies inside `rect`, so that 1 px lines are sharp."""
    painter.setPen(QPen(theme.color(line), width) if line else Qt.PenStyle.NoPen)
    if fill is None:
        painter.setBrush(Qt.BrushStyle.NoBrush)
    else:
        painter.setBrush(fill if isinstance(fill, QColor) else theme.color(fill))
    inset = width / 2 if line else 0.0
    painter.drawRoundedRect(rect.adjusted(inset, inset, -inset, -inset), radius, radius)


def card(painter: QPainter, rect: QRectF, radius: float, fill: str, line: str) -> None:
    """A large box as `rounded` paints it, on whole pixels: only its corners are smoothed, which is what costs."""
    x, y, width, height = rect.x(), rect.y(), rect.width(), rect.height()
    inside, edge = theme.color(fill), theme.color(line)
    painter.fillRect(QRectF(x, y + radius, width, height - 2 * radius), inside)
    painter.fillRect(QRectF(x + radius, y, width - 2 * radius, radius), inside)
    painter.fillRect(QRectF(x + radius, y + height - radius, width - 2 * radius, radius), inside)
    for side in (QRectF(x + radius, y, width - 2 * radius, 1), QRectF(x + radius, y + height - 1, width - 2 * radius, 1)):
        painter.fillRect(side, edge)
    for side in (QRectF(x, y + radius, 1, height - 2 * radius), QRectF(x + width - 1, y + radius, 1, height - 2 * radius)):
        painter.fillRect(side, edge)
    size = 2 * radius - 1
    right, foot = x + width - 0.5 - size, y + height - 0.5 - size
    corners = ((x + 0.5, y + 0.5, 90), (right, y + 0.5, 0), (right, foot, 270), (x + 0.5, foot, 180))
    painter.setBrush(inside)
    for left, top, start in corners:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.drawPie(QRectF(left, top, size, size), start * 16, 90 * 16)
        painter.setPen(QPen(edge, 1, Qt.PenStyle.SolidLine, Qt.PenCapStyle.FlatCap))
        painter.drawArc(QRectF(left, top, size, size), start * 16, 90 * 16)


def text(
    painter: QPainter,
    x: float,
    baseline: float,
    value: str,
    px: float = 13,
    weight: int = 400,
    color: str = "text",
    align: Align = "left",
    max_width: float | None = None,
    mono: bool = False,
) -> float:
    """One line of plain text, elided at max_width. Returns its width."""
    face = theme.font(px, weight, mono)
    metrics = QFontMetricsF(face)
    width = metrics.horizontalAdvance(value)
    if max_width is not None and width > max_width:
        value = metrics.elidedText(value, Qt.TextElideMode.ElideRight, max_width)
        width = metrics.horizontalAdvance(value)
    left = {"left": x, "right": x - width, "center": x - width / 2}[align]
    painter.setFont(face)
    painter.setPen(theme.color(color))
    painter.drawText(QPointF(left, baseline), value)
    return width


def line(painter: QPainter, x1: float, y1: float, x2: float, y2: float, color: str = "line") -> None:
    """A 1 px line; give .5 coordinates."""
    painter.setPen(QPen(theme.color(color), 1))
    painter.drawLine(QLineF(x1, y1, x2, y2))


def dot(painter: QPainter, x: float, y: float, radius: float, color: str) -> None:
    """A filled circle around (x, y)."""
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(theme.color(color))
    painter.drawEllipse(QPointF(x, y), radius, radius)


def key_width(keys: str) -> float:
    """Width of the key hint that `key_hint` paints."""
    return text_width(keys, 10, 500) + 9


def key_hint(painter: QPainter, x: float, y: float, keys: str, align: Align = "left", on_accent: bool = False) -> float:
    """A small key cap such as `Ctrl N`, 17 px high, its top at y; on_accent: it lies on an accent button. Returns its width."""
    width = key_width(keys)
    left = x - width if align == "right" else x
    rounded(painter, QRectF(left, y, width, 17), 4, _ON_ACCENT if on_accent else "overlay")
    text(painter, left + width / 2, y + 12.2, keys, 10, 600 if on_accent else 500, "#FFFFFF" if on_accent else "text2", "center")
    return width


def bar(painter: QPainter, rect: QRectF, segments: Sequence[tuple[float, str]], background: str = "overlay") -> None:
    """A rounded bar of (share of the width, colour token) segments with 1 px between them."""
    radius = rect.height() / 2
    path = QPainterPath()
    path.addRoundedRect(rect, radius, radius)
    painter.save()
    painter.setClipPath(path)
    painter.fillRect(rect, theme.color(background))
    x = rect.x()
    for share, token in segments:
        width = rect.width() * share
        painter.fillRect(QRectF(x, rect.y(), max(0.0, width - 1), rect.height()), theme.color(token))
        x += width
    painter.restore()


def tile(painter: QPainter, rect: QRectF, radius: float, icon_name: str, icon_size: float) -> None:
    """The brand tile: an icon in white on the violet gradient; it is the same in both themes."""
    gradient = QLinearGradient(rect.topLeft(), rect.bottomRight())
    for value, stop in _TILE:
        gradient.setColorAt(stop, QColor(value))
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(gradient)
    painter.drawRoundedRect(rect, radius, radius)
    draw_icon(painter, icon_name, rect.center().x() - icon_size / 2, rect.center().y() - icon_size / 2, icon_size, "#FFFFFF")


def focus_ring(painter: QPainter, rect: QRectF, radius: float) -> None:
    """The 2 px ring of the control that has the keyboard."""
    rounded(painter, rect, radius, None, "accent", 2)
