"""OptionButton: a line to choose from, over the whole width: a symptom with what it looks like, or an answer."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QKeyEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app import theme
from app.widgets import paint
from app.widgets.icon import draw_icon
from app.widgets.painted_button import PaintedButton

_PAD = 12
_ICON = 30


class OptionButton(PaintedButton):
    """The text wraps; quiet: an answer that evidence speaks against. Up and down go to its neighbours."""

    def __init__(self, text: str, detail: str = "", parent: QWidget | None = None, *, quiet: bool = False) -> None:
        super().__init__(text, parent)
        self._detail = detail
        self._quiet = quiet
        self.setAccessibleDescription(detail)
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        height = 2 * 9 + self._lines_height(self.text(), 13, 500, width)
        return height + (2 + self._lines_height(self._detail, 12, 400, width) if self._detail else 0)

    def sizeHint(self) -> QSize:
        return QSize(300, self.heightForWidth(300))

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.setMinimumHeight(self.heightForWidth(self.width()))
        super().resizeEvent(event)

    @staticmethod
    def _lines_height(text: str, px: int, weight: int, width: int) -> int:
        metrics = QFontMetrics(theme.font(px, weight))
        room = max(40, width - 2 * _PAD - _ICON)
        return metrics.boundingRect(0, 0, room, 10_000, int(Qt.TextFlag.TextWordWrap), text).height()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Down:
            self.focusNextChild()
        elif event.key() == Qt.Key.Key_Up:
            self.focusPreviousChild()
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        paint.rounded(painter, rect, 9, "overlay" if self.hovered else "raised", "line")
        width = rect.width() - 2 * _PAD - _ICON
        height = self._lines_height(self.text(), 13, 500, self.width())
        self._wrapped(painter, QRectF(_PAD, 9, width, height), self.text(), 13, 500, "text2" if self._quiet else "text")
        if self._detail:
            rest = QRectF(_PAD, 9 + height + 2, width, rect.height() - height - 20)
            self._wrapped(painter, rest, self._detail, 12, 400, "text3" if not self.hovered else "text2")
        draw_icon(painter, "chevron-right", rect.width() - 26, rect.height() / 2 - 7, 14, "text3")
        if self.focus_visible:
            paint.focus_ring(painter, rect, 9)

    @staticmethod
    def _wrapped(painter: QPainter, rect: QRectF, text: str, px: int, weight: int, token: str) -> None:
        painter.setFont(theme.font(px, weight))
        painter.setPen(theme.color(token))
        painter.drawText(rect, int(Qt.TextFlag.TextWordWrap), text)
