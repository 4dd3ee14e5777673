"""StatsBar: the line under an answer: its figures, or what became of it, with Continue where that makes sense."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.store.rows import Figures, Status
from app.widgets import paint
from app.widgets.buttons import LinkButton
from app.widgets.format import count_text, rate_text
from app.widgets.icon import draw_icon

HEIGHT = 26
_SEPARATOR = "   ·   "


class StatsBar(QWidget):
    """`12.1 tok/s   412 tokens · first token 2.9 s · prefill 212 tok/s`. Shows only what was measured."""

    continue_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._rate: float | None = None
        self._parts: tuple[str, ...] = ()
        self._status = ""
        self._by_user = False
        self._continue: LinkButton | None = None
        theme.hub().changed.connect(self.update)

    def set_figures(self, figures: Figures, status: Status, hidden: bool = False) -> None:
        """Figures of a finished or running answer. hidden: its text holds characters that cannot be seen."""
        self._rate = figures.decode_tok_s
        parts = []
        if figures.n_tokens:
            parts.append(self.tr("{n} tokens").format(n=count_text(figures.n_tokens)))
        if figures.ttft_s is not None:
            parts.append(self.tr("first token {s} s").format(s=f"{figures.ttft_s:.1f}"))
        if figures.prefill_tok_s is not None:
            parts.append(self.tr("prefill {rate} tok/s").format(rate=rate_text(figures.prefill_tok_s)))
        if hidden:
            parts.append(self.tr("holds hidden characters"))
        self._parts = tuple(parts)
        self._status = {"interrupted": self.tr("Interrupted"), "stopped": self.tr("Stopped")}.get(status, "")
        self._by_user = status == "stopped"
        if self._status and self._continue is None:
            self._continue = LinkButton(self.tr("Continue"), self, px=12)
            self._continue.clicked.connect(self.continue_requested)
        if self._continue is not None:
            self._continue.setVisible(bool(self._status))
            self._continue.setGeometry(round(self._status_width() + 8), 2, self._continue.sizeHint().width(), 22)
        self.setAccessibleName(", ".join(part for part in (self._status, self._rate_text(), *self._parts) if part))
        self.update()

    def _rate_text(self) -> str:
        return self.tr("{rate} tok/s").format(rate=rate_text(self._rate)) if self._rate is not None else ""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to say."""
        return self._rate is None and not self._parts and not self._status

    def _status_width(self) -> float:
        return paint.text_width(self._status, 11, 500) + 40 if self._status else 0.0

    def _chip_width(self) -> float:
        return paint.text_width(self._rate_text(), 11, 500) + 40 if self._rate is not None else 0.0

    def _text_x(self) -> float:
        x = 0.0
        if self._status:
            x += self._status_width() + 10 + self._continue_width() + 14
        if self._rate is not None:
            x += self._chip_width() + 14
        return x

    def _continue_width(self) -> int:
        return self._continue.sizeHint().width() if self._continue is not None else 0

    def sizeHint(self) -> QSize:
        return QSize(round(self._text_x() + paint.text_width(_SEPARATOR.join(self._parts), 12)) + 4, HEIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        x = 0.0
        if self._status:
            icon_name, token = ("square", "text2") if self._by_user else ("circle-alert", "warn")
            self._chip(painter, x, self._status_width(), icon_name, self._status, token)
            x = self._status_width() + 10 + self._continue_width() + 14
        if self._rate is not None and x + self._chip_width() <= self.width():
            self._chip(painter, x, self._chip_width(), "zap", self._rate_text(), "ok")
            x += self._chip_width() + 14
        paint.text(painter, x, 17, self._fitting(self.width() - x), 12, 400, "text3")

    def _fitting(self, room: float) -> str:
        """As many figures as fit whole; the accessible name has all."""
        for n in range(len(self._parts), 0, -1):
            text = _SEPARATOR.join(self._parts[:n])
            if paint.text_width(text, 12) <= room:
                return text
        return ""

    @staticmethod
    def _chip(painter: QPainter, x: float, width: float, icon_name: str, text: str, token: str) -> None:
        paint.rounded(painter, QRectF(x, 1, width, 24), 12, "raised", "line")
        draw_icon(painter, icon_name, x + 10, 6, 14, token)
        paint.text(painter, x + 30, 17, text, 11, 500, token)
