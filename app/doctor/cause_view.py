"""CauseBox: the end of a walk: the cause, what to do, the actions that help with it, and claims that are answered."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app import theme
from app.doctor.symptom_views import CauseView
from app.placement.pane import Prose
from app.widgets import paint
from app.widgets.buttons import LinkButton


class CauseBox(QWidget):
    """link_chosen(LinkView)."""

    link_chosen = Signal(object)

    def __init__(self, view: CauseView, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._view = view
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        cause = Prose(view.cause, 14, "text")
        face = cause.font()
        face.setWeight(face.Weight.DemiBold)
        cause.setFont(face)
        cause.setAccessibleName(view.cause)
        column.addWidget(cause)
        column.addWidget(Prose(self.tr("What to do"), 12, "text3"))
        for number, step in enumerate(view.todo, 1):
            column.addLayout(_numbered(number, step))
        self.links: list[LinkButton] = []
        for link in view.links:
            button = LinkButton(link.text, px=13)
            button.clicked.connect(lambda _on=False, one=link: self.link_chosen.emit(one))
            self.links.append(button)
            column.addWidget(button, 0, Qt.AlignmentFlag.AlignLeft)
        if view.myths:
            column.addSpacing(6)
        for myth in view.myths:
            column.addWidget(_Myth(myth))

    @property
    def view(self) -> CauseView:
        """What is shown."""
        return self._view


def _numbered(number: int, text: str) -> QHBoxLayout:
    row = QHBoxLayout()
    row.setSpacing(8)
    mark = Prose(f"{number}.", 13, "text3")
    mark.setFixedWidth(18)
    row.addWidget(mark, 0, Qt.AlignmentFlag.AlignTop)
    row.addWidget(Prose(text, 13, "text"), 1)
    return row


class _Myth(QWidget):
    def __init__(self, text: str) -> None:
        super().__init__()
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 9, 12, 9)
        column.addWidget(Prose(text, 12, "text2"))
        theme.hub().changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.rounded(painter, QRectF(self.rect()), 9, "raised", "line")
        paint.rounded(painter, QRectF(0, 8, 3, self.height() - 16), 1.5, "line2")
