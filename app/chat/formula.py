"""TeX to a picture: ziamath makes SVG in the worker thread, Qt paints it. A formula it cannot read stays TeX."""

from __future__ import annotations

import re
from functools import lru_cache

from PySide6.QtCore import QByteArray, QRectF, QSizeF, Qt
from PySide6.QtGui import QImage, QPainter
from PySide6.QtSvg import QSvgRenderer

MAX_TEX = 2000
_GENERIC = (
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    RecursionError,
    StopIteration,
    ArithmeticError,
    SyntaxError,
)


@lru_cache(maxsize=1)
def _errors() -> tuple[type[Exception], ...]:
    """What the two libraries raise on TeX they cannot read: their own classes have no common base."""
    from latex2mathml import exceptions

    own = [value for value in vars(exceptions).values() if isinstance(value, type) and issubclass(value, Exception)]
    return (*_GENERIC, NotImplementedError, *own)


@lru_cache(maxsize=512)
def tex_to_svg(tex: str, px: int, color: str) -> bytes:
    """SVG of a formula set at `px`, b"" if it cannot be set. Slow (10 to 30 ms): for the worker thread."""
    from ziamath.config import config
    from ziamath.zmath import Latex

    if len(tex) > MAX_TEX:
        return b""
    config.svg2 = False
    try:
        return bytes(Latex(tex, size=px, color=color, inline=False).svg().encode())
    except _errors():
        return b""


@lru_cache(maxsize=512)
def tex_to_inline_svg(tex: str, px: int, color: str) -> tuple[bytes, float]:
    """As tex_to_svg in text style, with the distance of the baseline from the bottom in pixels."""
    from ziamath.config import config
    from ziamath.zmath import Latex

    if len(tex) > MAX_TEX:
        return b"", 0.0
    config.svg2 = False
    try:
        formula = Latex(tex, size=px, color=color, inline=True)
        return bytes(formula.svg().encode()), max(0.0, -float(formula.getyofst()))
    except _errors():
        return b"", 0.0


def strip_tex(source: str) -> str:
    """The TeX of a display formula without its delimiters."""
    text = source.strip()
    for left, right in (("$$", "$$"), ("\\[", "\\]")):
        if text.startswith(left):
            text = text[2:]
            if text.endswith(right):
                text = text[:-2]
    return re.sub(r"\s+", " ", text).strip()


def svg_size(svg: bytes) -> QSizeF:
    """Size in logical pixels."""
    return QSizeF(QSvgRenderer(QByteArray(svg)).viewBoxF().size())


@lru_cache(maxsize=256)
def svg_image(svg: bytes, ratio: float) -> QImage:
    """The formula as an image with a device pixel ratio."""
    renderer = QSvgRenderer(QByteArray(svg))
    size = renderer.viewBoxF().size()
    image = QImage(
        max(1, round(size.width() * ratio)), max(1, round(size.height() * ratio)), QImage.Format.Format_ARGB32_Premultiplied
    )
    image.setDevicePixelRatio(ratio)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    renderer.render(painter, QRectF(0, 0, size.width(), size.height()))
    painter.end()
    return image
