"""PendingBar: at the foot of the panel: how many changes are not applied, or how far applying them has come."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app import theme
from app.widgets import paint
from app.widgets.buttons import LinkButton

HEIGHT = 68


class PendingBar(QWidget):
    """discard_requested, cancel_requested: the link at the right is one or the other."""

    discard_requested = Signal()
    cancel_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._title = ""
        self._detail = ""
        self._share: float | None = None
        self._applying = False
        self._tone = "text"
        self.setFixedHeight(HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.link = LinkButton(self.tr("Discard"), self, px=12)
        self.link.clicked.connect(self._on_link_clicked)
        theme.hub().changed.connect(self.update)

    def set_idle(self, text: str, detail: str = "") -> None:
        """Nothing waits to be applied."""
        self._show(text, detail, None, "", "text2")

    def set_pending(self, text: str, detail: str) -> None:
        """Changes wait."""
        self._show(text, detail, None, self.tr("Discard"), "text")

    def set_applying(self, text: str, detail: str, share: float | None) -> None:
        """They are being applied; share: of the bytes, None where it is not known."""
        self._applying = True
        self._show(text, detail, share if share is not None else 0.0, self.tr("Cancel"), "text", applying=True)

    def set_failed(self, text: str, detail: str) -> None:
        """They could not be applied; the model is as it was."""
        self._show(text, detail, None, self.tr("Discard"), "err")

    @property
    def text(self) -> str:
        """The two lines."""
        return f"{self._title}\n{self._detail}"

    def _show(self, title: str, detail: str, share: float | None, link: str, tone: str, *, applying: bool = False) -> None:
        self._title, self._detail, self._share, self._tone, self._applying = title, detail, share, tone, applying
        self.link.setText(link)
        self.link.setAccessibleName(link)
        self.link.setVisible(bool(link))
        self.setAccessibleName(title)
        self.setAccessibleDescription(detail)
        self.setToolTip(detail)
        self._place()
        self.update()

    def _on_link_clicked(self) -> None:
        if self._applying:
            self.cancel_requested.emit()
        else:
            self.discard_requested.emit()

    def _place(self) -> None:
        size = self.link.sizeHint()
        self.link.setGeometry(self.width() - 18 - size.width() + 1, 10, size.width(), size.height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def sizeHint(self) -> QSize:
        return QSize(272, HEIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        painter.fillRect(self.rect(), theme.color("surface"))
        paint.line(painter, 0, 0.5, self.width(), 0.5)
        room = self.width() - 36.0
        taken = 0 if self.link.isHidden() else self.link.width() + 10
        paint.text(painter, 18, 25, self._title, 12, 600, self._tone, max_width=room - taken)
        paint.text(painter, 18, 44, self._detail, 12, 400, "text3", max_width=room)
        if self._share is not None:
            paint.bar(painter, QRectF(18, 54, room, 4), [(min(1.0, max(0.0, self._share)), "accent")])
