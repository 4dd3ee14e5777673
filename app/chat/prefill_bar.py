"""PrefillBar: what stands in an answer's place while the prompt is read: tokens done, speed, time left."""

from __future__ import annotations

from PySide6.QtCore import QElapsedTimer, QRectF, QTimer
from PySide6.QtGui import QHideEvent, QPainter, QPaintEvent, QShowEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.widgets import paint
from app.widgets.format import count_text, rate_text, seconds_text

HEIGHT = 46
_STALL_MS = 10_000


class PrefillBar(QWidget):
    """Real counts only. After ten seconds without progress it says that it waits."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._done = 0
        self._total = 0
        self._rate: float | None = None
        self._since = QElapsedTimer()
        self._since.start()
        self._timer = QTimer(self)
        self._timer.setInterval(1000)
        self._timer.timeout.connect(self.update)
        theme.hub().changed.connect(self.update)

    def set_progress(self, done: int, total: int, tok_s: float | None) -> None:
        """done of total prompt tokens."""
        if done != self._done:
            self._since.restart()
        self._done, self._total, self._rate = done, total, tok_s
        self.setAccessibleName(self._title())
        self.update()

    def showEvent(self, event: QShowEvent) -> None:
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        self._timer.stop()

    def _title(self) -> str:
        if self._total == 0:
            return self.tr("Waiting for the engine")
        return self.tr("Reading the prompt, {done} of {total} tokens").format(
            done=count_text(self._done), total=count_text(self._total)
        )

    def _detail(self) -> str:
        if self._since.elapsed() > _STALL_MS:
            return self.tr("no progress for {s} s").format(s=self._since.elapsed() // 1000)
        if not self._rate:
            return ""
        left = (self._total - self._done) / self._rate
        return self.tr("{rate} tok/s   ·   {time} left").format(rate=rate_text(self._rate), time=seconds_text(left))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        width = min(420.0, self.width())
        detail = self._detail()
        room = width - paint.text_width(detail, 12) - 16 if detail else width
        paint.text(painter, 0, 19, self._title(), 13, 500, "text2", max_width=room)
        paint.text(painter, width, 19, detail, 12, 400, "text3", "right")
        share = self._done / self._total if self._total else 0.0
        paint.bar(painter, QRectF(0, 31, width, 6), [(share, "accent")])
