"""SummaryBar: what a placement costs, in five figures: decode, prefill, load time, what limits it, the tightest device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app import theme
from app.widgets import paint

HEIGHT = 64
_LEAST_CELL = 128


@dataclass(frozen=True, slots=True)
class Figure:
    """One cell. note: beside the label, quieter, such as the bound of the memory; unit_tone, delta_tone: colour tokens."""

    label: str
    value: str
    unit: str = ""
    unit_tone: str = "text2"
    delta: str = ""
    delta_tone: str = "ok"
    note: str = ""


class SummaryBar(QWidget):
    """Dimmed while the figures are being found; alarmed where the placement does not fit. A narrow bar drops cells before the
    last."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._figures: tuple[Figure, ...] = ()
        self._dim = False
        self._alarmed = False
        self.setFixedHeight(HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("Summary of the placement"))
        theme.hub().changed.connect(self.update)

    def set_figures(self, figures: Sequence[Figure], *, dim: bool = False, alarmed: bool = False) -> None:
        """Show other figures."""
        fresh = tuple(figures)
        if (fresh, dim, alarmed) == (self._figures, self._dim, self._alarmed):
            return
        self._figures, self._dim, self._alarmed = fresh, dim, alarmed
        words = (f"{one.label}: {one.value} {one.unit} {one.delta}".strip() for one in fresh)
        self.setAccessibleDescription("; ".join(" ".join(line.split()) for line in words))
        self.setToolTip("\n".join(f"{one.label}: {one.note}" for one in fresh if one.note))
        self.update()

    @property
    def figures(self) -> tuple[Figure, ...]:
        """What is shown."""
        return self._figures

    def sizeHint(self) -> QSize:
        return QSize(900, HEIGHT)

    def minimumSizeHint(self) -> QSize:
        return QSize(3 * _LEAST_CELL, HEIGHT)

    def _shown(self) -> tuple[Figure, ...]:
        n_shown = max(3, min(len(self._figures), self.width() // _LEAST_CELL))
        if n_shown >= len(self._figures):
            return self._figures
        return (*self._figures[: n_shown - 1], self._figures[-1])

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        if self._alarmed:
            paint.rounded(painter, rect, 12, "surface")
            paint.rounded(painter, rect, 12, theme.color("err", 0.08), "err")
        else:
            paint.rounded(painter, rect, 12, "surface", "line")
        shown = self._shown()
        if not shown:
            return
        if self._dim:
            painter.setOpacity(0.45)
        width = rect.width() / len(shown)
        for i, figure in enumerate(shown):
            x = 18 + i * width
            self._paint_figure(painter, x, width - 30, figure)
            if i:
                paint.line(painter, round(i * width) + 0.5, 14, round(i * width) + 0.5, 50, "err" if self._alarmed else "line")

    @staticmethod
    def _paint_figure(painter: QPainter, x: float, room: float, figure: Figure) -> None:
        used = paint.text(painter, x, 23, figure.label, 11, 500, "text3", max_width=room)
        if figure.note and room - used > paint.text_width(figure.note, 11) + 10:
            paint.text(painter, x + room, 23, figure.note, 11, 400, "text3", "right")
        used = paint.text(painter, x, 48, figure.value, 19, 600, max_width=room)
        if figure.unit and room - used > 18:
            used += 6 + paint.text(painter, x + used + 6, 48, figure.unit, 12, 400, figure.unit_tone, max_width=room - used - 6)
        if figure.delta and room - used > 18:
            paint.text(painter, x + used + 8, 48, figure.delta, 12, 600, figure.delta_tone, max_width=room - used - 8)
