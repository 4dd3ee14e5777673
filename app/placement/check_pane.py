"""CheckPane: the truth after loading: predicted against real bytes, and whatever lies or runs otherwise than planned."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app import theme
from app.placement.figure_table import FigureTable, TableRow
from app.placement.pane import Pane, Prose, Rule
from app.widgets.buttons import PushButton
from app.widgets.icon import draw_icon

_ICONS = {"ok": "check", "warn": "triangle-alert", "err": "circle-alert"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. tone: `ok`, `warn` or `err`."""

    tone: str
    text: str


@dataclass(frozen=True, slots=True)
class Check:
    """rows: predicted and real bytes by device and owner; empty: nothing is loaded, and `subtitle` says so."""

    subtitle: str
    rows: tuple[TableRow, ...] = ()
    findings: tuple[Finding, ...] = ()


class CheckPane(Pane):
    """again_requested: look once more."""

    again_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(self.tr("Check"))
        self._table = FigureTable(self.tr("Predicted and real bytes"), (86, 86, 72))
        self._findings = QVBoxLayout()
        self._findings.setSpacing(8)
        self._lines: list[_FindingLine] = []
        self.again = PushButton(self.tr("Check again"), height=30, icon_name="refresh-cw")
        self._rule = Rule()
        foot = QHBoxLayout()
        foot.addWidget(self.again)
        foot.addStretch(1)
        column = self.column
        column.addSpacing(12)
        column.addLayout(self._findings)
        column.addSpacing(12)
        column.addWidget(self._rule)
        column.addSpacing(10)
        column.addWidget(self._table)
        column.addSpacing(14)
        column.addLayout(foot)
        column.addStretch(1)
        self.again.clicked.connect(self.again_requested)
        self.show_check(Check(self.tr("No model is loaded")))

    def show_check(self, check: Check) -> None:
        """Show another look."""
        self.set_title(self.tr("What was loaded"), check.subtitle)
        self._table.set_rows((self.tr("predicted"), self.tr("real"), self.tr("off by")) if check.rows else (), check.rows)
        for widget in (self._table, self._rule, self.again):
            widget.setVisible(bool(check.rows))
        while len(self._lines) < len(check.findings):
            line = _FindingLine()
            self._lines.append(line)
            self._findings.addWidget(line)
        for i, line in enumerate(self._lines):
            line.setVisible(i < len(check.findings))
            if i < len(check.findings):
                line.show_finding(check.findings[i])

    @property
    def findings(self) -> tuple[str, ...]:
        """The sentences that are shown."""
        return tuple(line.text for line in self._lines if not line.isHidden())

    @property
    def rows(self) -> tuple[TableRow, ...]:
        """The table."""
        return self._table.rows


class _FindingLine(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self._tone = "ok"
        self._text = Prose(color_token="text")
        row = QHBoxLayout(self)
        row.setContentsMargins(24, 0, 0, 0)
        row.addWidget(self._text, 1)
        theme.hub().changed.connect(self.update)

    def show_finding(self, finding: Finding) -> None:
        self._tone = finding.tone
        self._text.set_text(finding.text, "text" if finding.tone != "ok" else "text2")
        self.update()

    @property
    def text(self) -> str:
        return self._text.text()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        draw_icon(painter, _ICONS[self._tone], 1, 1, 14, self._tone)
