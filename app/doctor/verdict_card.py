"""VerdictCard: all checks in one sentence, with their counts and the time of the last run; a bar while they run."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app import theme
from app.doctor.rows import Summary
from app.widgets import paint
from app.widgets.buttons import LinkButton
from app.widgets.icon import draw_icon

HEIGHT = 70


class VerdictCard(QWidget):
    """Painted; its accessible name is what it says. shown_wanted: the row behind it, again: the next such row."""

    shown_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._summary: Summary | None = None
        self._share: float | None = None
        self.show_it = LinkButton("", self)
        self.show_it.clicked.connect(self.shown_wanted)
        self.show_it.hide()
        self.setFixedHeight(HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.hub().changed.connect(self.update)

    def show_summary(self, summary: Summary, share: float | None = None) -> None:
        """share: of the run that is done, 0..1; None while none runs."""
        if (summary, share) != (self._summary, self._share):
            self._summary, self._share = summary, share
            self.setAccessibleName(summary.title)
            self.setAccessibleDescription(summary.line)
            self.setToolTip(summary.line)
            self.show_it.setText(summary.link)
            self.show_it.setAccessibleName(summary.link)
            self.show_it.setVisible(bool(summary.link))
            self._place()
            self.update()

    def _place(self) -> None:
        size = self.show_it.sizeHint()
        self.show_it.setGeometry(self.width() - size.width() - 18, (HEIGHT - size.height()) // 2, size.width(), size.height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    @property
    def text(self) -> str:
        """What it says."""
        return "" if self._summary is None else f"{self._summary.title}\n{self._summary.line}"

    def paintEvent(self, event: QPaintEvent) -> None:
        summary = self._summary
        if summary is None:
            return
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        loud = summary.tone in ("err", "warn")
        paint.rounded(painter, rect, 12, "surface", None if loud else "line")
        if loud:
            paint.rounded(painter, rect, 12, theme.color(summary.tone, 0.08), summary.tone)
        paint.rounded(painter, QRectF(16, 16, 38, 38), 11, theme.color(summary.tone, 0.14))
        draw_icon(painter, summary.icon, 25, 25, 20, summary.tone)
        room = rect.width() - 68 - 18 - (0 if self.show_it.isHidden() else self.show_it.width() + 16)
        paint.text(painter, 68, 32, summary.title, 15, 600, max_width=room)
        paint.text(painter, 68, 53, summary.line, 12, 400, "text2", max_width=room)
        if self._share is not None:
            paint.bar(painter, QRectF(68, rect.height() - 9, room, 3), ((self._share, "accent"),))
