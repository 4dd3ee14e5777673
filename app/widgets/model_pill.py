"""ModelPill: the button in the header of a page that names the model and opens the picker."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.widgets import paint
from app.widgets.format import bytes_text
from app.widgets.icon import draw_icon
from app.widgets.painted_button import PaintedButton

HEIGHT = 34
WIDTH = 330
BADGE_WIDTH = 90
_ROOMY, _TIGHT = 290, 230


class ModelPill(PaintedButton):
    """Dot of the engine state, model name, quant tag, size. Without a model it says so and is still a button.

    A second tag says that some of the model runs on the exact, slower path; the tooltip names the formats.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("", parent)
        self._name = ""
        self._quant = ""
        self._bytes = 0
        self._exact: tuple[str, ...] = ()
        self._dot = "text3"
        self.setFixedHeight(HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.set_model("", "", 0)

    def set_model(self, name: str, quant: str, file_bytes: int, exact_formats: tuple[str, ...] = ()) -> None:
        """An empty name means that no model is chosen. exact_formats: those of the file that run on the exact, slower path."""
        self._name, self._quant, self._bytes, self._exact = name, quant, file_bytes, exact_formats
        slow = self.tr("{formats}: exact, several times slower").format(formats=", ".join(exact_formats)) if exact_formats else ""
        self.setAccessibleName(self.tr("Model: {name}").format(name=name) if name else self.tr("Choose a model"))
        self.setAccessibleDescription(slow)
        self.setToolTip(self.tr("Choose a model") + "   Ctrl+L" + ("\n" + slow if slow else ""))
        self.updateGeometry()
        self.update()

    def set_dot(self, token: str) -> None:
        """Colour of the state dot."""
        self._dot = token
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(WIDTH + (BADGE_WIDTH if self._exact else 0), HEIGHT)

    def minimumSizeHint(self) -> QSize:
        return QSize(180, HEIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        paint.rounded(painter, rect, 9, "overlay" if self.hovered else "raised", "line2")
        paint.dot(painter, 16, 17, 4, self._dot)
        name = self._name or self.tr("No model")
        size = bytes_text(self._bytes) if self._bytes and rect.width() >= _ROOMY else ""
        quant = self._quant if rect.width() >= _TIGHT else ""
        tag = paint.text_width(quant, 10, 600) + 18 if quant else 0
        badge = self.tr("exact, slow") if self._exact else ""
        badge_width = paint.text_width(badge, 10, 600) + 18 if badge else 0
        reserved = (
            (tag + 10 if tag else 0) + (badge_width + 10 if badge else 0) + (paint.text_width(size, 12) + 10 if size else 0) + 30
        )
        x = (
            28
            + paint.text(
                painter, 28, 21.5, name, 13, 600, "text" if self._name else "text2", max_width=rect.width() - 28 - reserved
            )
            + 10
        )
        if quant:
            paint.rounded(painter, QRectF(x, 8, tag, 18), 5, "overlay")
            paint.text(painter, x + tag / 2, 20.6, quant, 10, 600, "text2", "center")
            x += tag + 10
        if badge:
            paint.rounded(painter, QRectF(x, 8, badge_width, 18), 5, "overlay", "warn")
            paint.text(painter, x + badge_width / 2, 20.6, badge, 10, 600, "warn", "center")
            x += badge_width + 10
        if size:
            paint.text(painter, x, 21.4, size, 12, 400, "text3")
        draw_icon(painter, "chevron-down", rect.width() - 24, 10, 14, "text3")
        if self.focus_visible:
            paint.focus_ring(painter, rect, 9)
