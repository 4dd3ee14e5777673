"""FactList: lines of a label and its value, as the panel at the right shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QSize
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app import theme
from app.widgets import paint

ROW = 24


@dataclass(frozen=True, slots=True)
class Fact:
    """tone: the colour token of the value."""

    label: str
    value: str
    tone: str = "text"


class FactList(QWidget):
    """Painted; what it says is its accessible description."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._facts: tuple[Fact, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("Facts"))
        theme.hub().changed.connect(self.update)

    def set_facts(self, facts: Sequence[Fact]) -> None:
        """Show other lines."""
        fresh = tuple(facts)
        if fresh == self._facts:
            return
        self._facts = fresh
        self.setAccessibleDescription("; ".join(f"{one.label}: {one.value}" for one in fresh))
        self.setFixedHeight(ROW * len(fresh))
        self.update()

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What is shown."""
        return self._facts

    def sizeHint(self) -> QSize:
        return QSize(236, ROW * len(self._facts))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        for i, fact in enumerate(self._facts):
            baseline = i * ROW + 16
            width = paint.text_width(fact.value, 12, 500)
            room = max(60.0, self.width() - width - 12)
            used = paint.text(painter, 0, baseline, fact.label, 12, 400, "text3", max_width=room)
            most = self.width() - used - 10
            paint.text(painter, self.width(), baseline, fact.value, 12, 500, fact.tone, "right", max_width=most)
