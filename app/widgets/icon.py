"""Icons: the SVG files of resources/icons, tinted with a theme colour and cached per size and device pixel ratio."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from PySide6.QtCore import QByteArray, QRectF, QSize, Qt
from PySide6.QtGui import QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from app import theme

__all__ = ["draw_icon", "icon", "pixmap"]


def icon(name: str, color_token: str = "text2", size: int = 16) -> QIcon:
    """The icon `name` in a theme colour, with pixmaps for 1x and 2x screens. Ask again after the theme changed."""
    result = QIcon()
    for ratio in (1.0, 2.0):
        result.addPixmap(pixmap(name, color_token, size, ratio))
    return result


def pixmap(name: str, color_token: str = "text2", size: int = 16, ratio: float = 1.0) -> QPixmap:
    """The icon as a square pixmap of `size` logical pixels at a device pixel ratio."""
    return _pixmap(name, theme.color(color_token).name(), size, ratio)


def draw_icon(painter: QPainter, name: str, x: float, y: float, size: float = 16, color_token: str = "text2") -> None:
    """Paint the icon with its top left corner at (x, y)."""
    _renderer(name, theme.color(color_token).name()).render(painter, QRectF(x, y, size, size))


@lru_cache(maxsize=256)
def _pixmap(name: str, color: str, size: int, ratio: float) -> QPixmap:
    result = QPixmap(QSize(round(size * ratio), round(size * ratio)))
    result.setDevicePixelRatio(ratio)
    result.fill(Qt.GlobalColor.transparent)
    painter = QPainter(result)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    _renderer(name, color).render(painter, QRectF(0, 0, size, size))
    painter.end()
    return result


@lru_cache(maxsize=256)
def _renderer(name: str, color: str) -> QSvgRenderer:
    source = _source(name).replace("currentColor", color).replace('stroke-width="2"', 'stroke-width="1.75"')
    return QSvgRenderer(QByteArray(source.encode()))


@lru_cache(maxsize=128)
def _source(name: str) -> str:
    return files("resources").joinpath("icons", f"{name}.svg").read_text(encoding="utf-8")
