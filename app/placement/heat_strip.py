"""The strip of a layer: one cell for each expert, the brighter the more it is chosen."""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QImage, QPainter

from app import theme

HEIGHT = 6.0
_COLDEST = 0.07
_MAX_CELLS = 128
"""More cells than these are merged: they would be thinner than a pixel and a half."""


def heat_ramp(share: float) -> QColor:
    """The colour of an expert that is chosen this often, 0..1 of the busiest."""
    part = _COLDEST + (1 - _COLDEST) * min(1.0, max(0.0, share))
    return theme.mixed("raised", "experts", part)


def draw_strip(painter: QPainter, rect: QRectF, heat: bytes, n_hot: int = 0) -> None:
    """The cells of a layer over the width of rect. n_hot: only the hottest so many, side by side."""
    values = _merged(heat)
    if n_hot:
        n_cells = max(1, round(len(values) * n_hot / len(heat)))
        values = bytes(sorted(values, reverse=True)[:n_cells])
        rect = QRectF(rect.x(), rect.y(), rect.width() * n_cells / len(_merged(heat)), rect.height())
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, False)
    painter.drawImage(rect, _image(values, theme.current().name))
    painter.restore()


def _merged(heat: bytes) -> bytes:
    per_cell = -(-len(heat) // _MAX_CELLS)
    return heat if per_cell == 1 else bytes(sum(heat[i : i + per_cell]) // per_cell for i in range(0, len(heat), per_cell))


@lru_cache(maxsize=4)
def _ramp(_theme: str) -> tuple[QColor, ...]:
    return tuple(heat_ramp(value / 255) for value in range(256))


@lru_cache(maxsize=512)
def _image(values: bytes, theme_name: str) -> QImage:
    image = QImage(values, len(values), 1, len(values), QImage.Format.Format_Indexed8)
    image.setColorTable([color.rgb() for color in _ramp(theme_name)])
    return image.convertToFormat(QImage.Format.Format_RGB32)
