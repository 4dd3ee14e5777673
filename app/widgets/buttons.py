"""The buttons of the application: filled and outlined push buttons, icon buttons and text links."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.widgets import paint
from app.widgets.icon import draw_icon
from app.widgets.painted_button import PaintedButton

Kind = Literal["primary", "secondary", "solid", "danger"]


class PushButton(PaintedButton):
    """A push button with an optional icon on the left and a key hint on the right."""

    def __init__(
        self,
        text: str,
        kind: Kind = "secondary",
        parent: QWidget | None = None,
        *,
        icon_name: str = "",
        keys: str = "",
        height: int = 34,
        width: int | None = None,
        icon_size: int = 14,
    ) -> None:
        super().__init__(text, parent)
        self._kind: Kind = kind
        self._icon_name = icon_name
        self._keys = keys
        self._icon_size = icon_size
        self._fixed_width = width
        self._height = height
        self.setFixedHeight(height)

    def set_content(self, text: str, icon_name: str, keys: str, kind: Kind) -> None:
        """Turn this button into another one, e.g. Send into Stop; the size follows."""
        if (text, icon_name, keys, kind) == (self.text(), self._icon_name, self._keys, self._kind):
            return
        self.setText(text)
        self.setAccessibleName(text)
        self._icon_name, self._keys, self._kind = icon_name, keys, kind
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        if self._fixed_width is not None:
            return QSize(self._fixed_width, self._height)
        return QSize(round(self._content_width() + (18 if self._keys else 26)), self._height)

    def _content_width(self) -> float:
        width = paint.text_width(self.text(), 13, 600)
        width += self._icon_size + 6 if self._icon_name else 0
        return width + (12 + paint.key_width(self._keys) if self._keys else 0)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        if not self.isEnabled():
            painter.setOpacity(0.5)
        rect = QRectF(self.rect())
        ink = self._paint_box(painter, rect)
        x = 12.0 if self._keys else (rect.width() - self._content_width()) / 2
        middle = rect.height() / 2
        if self._icon_name:
            draw_icon(painter, self._icon_name, x, middle - self._icon_size / 2, self._icon_size, ink)
            x += self._icon_size + (8 if self._icon_size > 14 else 6)
        paint.text(painter, x, middle + 4.5, self.text(), 13, 600, ink)
        if self._keys:
            paint.key_hint(painter, rect.width() - 10, middle - 8.5, self._keys, "right", self._kind == "primary")
        if self.focus_visible:
            paint.focus_ring(painter, rect, 9)

    def _paint_box(self, painter: QPainter, rect: QRectF) -> str:
        if self._kind == "primary":
            paint.rounded(painter, rect, 9, theme.color("accent").lighter(108) if self.hovered else "accent")
            return "on_accent"
        resting = "overlay" if self._kind == "solid" else "raised"
        paint.rounded(
            painter,
            rect,
            9,
            "line2" if self.hovered and self._kind == "solid" else ("overlay" if self.hovered else resting),
            "line2",
        )
        return "err" if self._kind == "danger" else "text"


class IconButton(PaintedButton):
    """A square button that is only an icon; `text` is its accessible name and tooltip."""

    def __init__(
        self,
        icon_name: str,
        text: str,
        parent: QWidget | None = None,
        *,
        size: int = 28,
        icon_size: int = 16,
        color_token: str = "text2",
    ) -> None:
        super().__init__(text, parent)
        self._icon_name = icon_name
        self._icon_size = icon_size
        self._color_token = color_token
        self.setToolTip(text)
        self.setFixedSize(size, size)

    @property
    def icon_name(self) -> str:
        """The icon that is shown."""
        return self._icon_name

    def set_icon(self, icon_name: str, color_token: str = "text2") -> None:
        """Show another icon, e.g. a tick after copying."""
        self._icon_name, self._color_token = icon_name, color_token
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        if self.isEnabled() and (self.hovered or self.isDown()):
            paint.rounded(painter, rect, 7, "overlay")
        if not self.isEnabled():
            painter.setOpacity(0.4)
        token = "text" if self.hovered or self.isChecked() else self._color_token
        inset = (self.width() - self._icon_size) / 2
        draw_icon(painter, self._icon_name, inset, inset, self._icon_size, token)
        if self.focus_visible:
            paint.focus_ring(painter, rect, 7)


class LinkButton(PaintedButton):
    """Text in the accent colour that acts like a link."""

    def __init__(
        self, text: str, parent: QWidget | None = None, *, px: int = 13, weight: int = 600, color_token: str = "accent"
    ) -> None:
        super().__init__(text, parent)
        self._px = px
        self._weight = weight
        self._color_token = color_token

    def sizeHint(self) -> QSize:
        return QSize(round(paint.text_width(self.text(), self._px, self._weight)) + 2, self._px + 9)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        face = theme.font(self._px, self._weight)
        face.setUnderline(self.hovered)
        painter.setFont(face)
        painter.setPen(theme.color(self._color_token))
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, self.text())
        if self.focus_visible:
            paint.focus_ring(painter, QRectF(self.rect()), 5)
