"""StepLine: a question of a walk with its answer, who gave it, and a way to answer otherwise."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app import theme
from app.doctor.symptom_views import StepView
from app.placement.pane import Prose
from app.widgets import paint
from app.widgets.buttons import LinkButton
from app.widgets.icon import draw_icon


class StepLine(QWidget):
    """change_requested: the person answers otherwise."""

    change_requested = Signal()

    def __init__(self, step: StepView, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._told = step.told
        column = QVBoxLayout(self)
        column.setContentsMargins(24, 0, 0, 0)
        column.setSpacing(1)
        column.addWidget(Prose(step.question, 12, "text3"))
        row = QHBoxLayout()
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        row.addWidget(Prose(step.answer, 13, "text"), 1)
        change = LinkButton(self.tr("Change"), px=12)
        change.setAccessibleName(self.tr("Change the answer to: %1").replace("%1", step.question))
        change.clicked.connect(self.change_requested)
        row.addWidget(change, 0, Qt.AlignmentFlag.AlignTop)
        column.addLayout(row)
        said = step.because or (self.tr("Everything else was ruled out by the checks.") if step.told else "")
        if said:
            column.addWidget(Prose(said, 12, "text2"))
        theme.hub().changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        draw_icon(painter, "stethoscope" if self._told else "check", 1, 2, 14, "accent" if self._told else "text3")
