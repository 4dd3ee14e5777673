"""Chip: a small rounded label with an optional icon, dot or chevron; clickable or not."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.widgets import paint
from app.widgets.icon import draw_icon
from app.widgets.painted_button import PaintedButton


class Chip(PaintedButton):
    """A pill of `height` 24 to 30. Active chips are drawn in the accent; a chip with a chevron opens something."""

    def __init__(
        self,
        text: str,
        icon_name: str = "",
        parent: QWidget | None = None,
        *,
        height: int = 26,
        px: int = 12,
        color_token: str = "text2",
        chevron: bool = False,
        clickable: bool = True,
    ) -> None:
        super().__init__(text, parent)
        self._icon_name = icon_name
        self._px = px
        self._color_token = color_token
        self._chevron = chevron
        self._active = False
        self._dimmed = False
        self._dot = ""
        self.setFixedHeight(height)
        if not clickable:
            self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
            self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)

    def set_label(
        self, text: str, *, icon_name: str | None = None, color_token: str | None = None, dot: str | None = None
    ) -> None:
        """Change what the chip says; None leaves a part as it is."""
        if icon_name is not None:
            self._icon_name = icon_name
        if color_token is not None:
            self._color_token = color_token
        if dot is not None:
            self._dot = dot
        if text != self.text():
            self.setText(text)
            self.setAccessibleName(text)
            self.updateGeometry()
        self.update()

    def set_active(self, active: bool) -> None:
        """Draw the chip as switched on."""
        self._active = active
        self.update()

    def set_dimmed(self, dimmed: bool) -> None:
        """Draw the chip as switched off: what it stands for is hidden."""
        self._dimmed = dimmed
        self.update()

    def sizeHint(self) -> QSize:
        width = paint.text_width(self.text(), self._px, 500) + 20
        width += 20 if self._icon_name else 0
        width += 14 if self._dot else 0
        width += 18 if self._chevron else 0
        return QSize(round(width + 0.49), self.height())

    def minimumSizeHint(self) -> QSize:
        return QSize(min(48, self.sizeHint().width()), self.height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        if self._dimmed or not self.isEnabled():
            painter.setOpacity(0.45)
        rect = QRectF(self.rect())
        height = rect.height()
        radius = height / 2 if height <= 26 else 8
        fill = "accent_dim" if self._active else ("overlay" if self.hovered else "raised")
        paint.rounded(painter, rect, radius, fill, "accent" if self._active else "line")
        ink = "accent_text" if self._active else self._color_token
        x = 10.0
        if self._dot:
            paint.dot(painter, x + 4, height / 2, 3.5, self._dot)
            x += 14
        if self._icon_name:
            draw_icon(painter, self._icon_name, x, height / 2 - 7, 14, ink)
            x += 20
        paint.text(
            painter,
            x,
            height / 2 + self._px * 0.36,
            self.text(),
            self._px,
            500,
            "text" if self._chevron and not self._active else ink,
            max_width=max(8.0, rect.width() - x - (26 if self._chevron else 8)),
        )
        if self._chevron:
            draw_icon(painter, "chevron-down", rect.width() - 22, height / 2 - 6.5, 13, "text3")
        if self.focus_visible:
            paint.focus_ring(painter, rect, radius)
