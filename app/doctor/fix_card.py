"""FixCard: a line that a person may run, to be copied; what it changes, and how to undo that. It never runs anything."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QGuiApplication, QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app import theme
from app.doctor.rows import FixView
from app.i18n import filled
from app.placement.pane import Prose
from app.widgets import paint
from app.widgets.copy_button import CopyButton


class FixCard(QWidget):
    """One fix."""

    def __init__(self, fix: FixView, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._fix = fix
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(5)
        if fix.command:
            column.addWidget(_CodeLine(fix.command))
        changes = self.tr("Changes: %1") if fix.command else "%1"
        for label, text in ((changes, fix.changes), (self.tr("Undo: %1"), fix.undo)):
            if text:
                column.addWidget(Prose(filled(label, text), 12, "text2"))

    @property
    def fix(self) -> FixView:
        """What is shown."""
        return self._fix


class _CodeLine(QWidget):
    def __init__(self, command: str) -> None:
        super().__init__()
        self._command = command
        label = QLabel(command)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setWordWrap(True)
        label.setFont(theme.font(12, 400, mono=True))
        label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._label = label
        self._copy = CopyButton(self.tr("Copy"))
        self._copy.setAccessibleName(filled(self.tr("Copy: %1"), command))
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 6, 6, 6)
        row.setSpacing(8)
        row.addWidget(label, 1)
        row.addWidget(self._copy, 0, Qt.AlignmentFlag.AlignTop)
        self._copy.clicked.connect(self._on_copy)
        theme.hub().changed.connect(self._recolor)
        self._recolor()

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(self._command)
        self._copy.confirm()

    def _recolor(self) -> None:
        self._label.setStyleSheet(f"color: {theme.color('code_text').name()};")
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.rounded(painter, QRectF(self.rect()), 8, "code_bg", "line")
