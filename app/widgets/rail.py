"""Rail: the column of pages at the left edge, with Settings at its foot."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.widgets import paint
from app.widgets.icon import draw_icon
from app.widgets.painted_button import PaintedButton

WIDTH = 72
_TOP = 70
_STEP = 62


class Rail(QWidget):
    """Pages from the top, those added with at_foot from the bottom. Emits the key of the page that was asked for."""

    page_requested = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._items: dict[str, _RailItem] = {}
        self.setFixedWidth(WIDTH)
        self.setAccessibleName(self.tr("Pages"))
        theme.hub().changed.connect(self.update)

    def add_page(self, key: str, text: str, icon_name: str, shortcut_text: str = "", *, at_foot: bool | None = None) -> None:
        """Add a page; the key `settings` goes to the foot unless at_foot says otherwise."""
        item = _RailItem(text, icon_name, self)
        item.at_foot = key == "settings" if at_foot is None else at_foot
        item.setToolTip(f"{text}   {shortcut_text}" if shortcut_text else text)
        item.clicked.connect(lambda: self.page_requested.emit(key))
        self._items[key] = item
        item.show()
        self._place()

    def set_current(self, key: str) -> None:
        """Mark the page that is shown."""
        for name, item in self._items.items():
            item.setChecked(name == key)

    def set_dot(self, key: str, color_token: str) -> None:
        """Put a small dot on a page's icon, e.g. `warn`; an empty token takes it away."""
        self._items[key].dot = color_token
        self._items[key].update()

    def sizeHint(self) -> QSize:
        return QSize(WIDTH, 600)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def _place(self) -> None:
        top, foot = _TOP, self.height() - 18 - 52
        for item in self._items.values():
            item.setGeometry(0, foot if item.at_foot else top, WIDTH, 52)
            if item.at_foot:
                foot -= _STEP
            else:
                top += _STEP

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        painter.fillRect(self.rect(), theme.color("panel"))
        paint.line(painter, WIDTH - 0.5, 0, WIDTH - 0.5, self.height())
        paint.tile(painter, QRectF(20, 16, 32, 32), 9, "layers", 16)


class _RailItem(PaintedButton):
    def __init__(self, text: str, icon_name: str, parent: QWidget) -> None:
        super().__init__(text, parent)
        self._icon_name = icon_name
        self.at_foot = False
        self.dot = ""
        self.setCheckable(True)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)

    def nextCheckState(self) -> None:
        """Only set_current checks an item: a click asks for the page, it does not show it."""

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        on = self.isChecked()
        if on:
            paint.rounded(painter, QRectF(10, 0, 52, 52), 10, "overlay")
            paint.rounded(painter, QRectF(0, 14, 3, 24), 1.5, "accent")
        elif self.hovered:
            paint.rounded(painter, QRectF(10, 0, 52, 52), 10, "raised")
        ink = "text" if on or self.hovered else "text2"
        draw_icon(painter, self._icon_name, 26, 9 if not self.at_foot else 4, 20, ink)
        paint.text(painter, 36, 44 if not self.at_foot else 40, self.text(), 10, 600 if on else 500, ink, "center")
        if self.dot:
            paint.dot(painter, 49, 9, 4, self.dot)
        if self.focus_visible:
            paint.focus_ring(painter, QRectF(10, 0, 52, 52), 10)
