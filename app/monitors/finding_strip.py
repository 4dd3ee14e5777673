"""FindingStrip: what limits the machine, in two sentences at most: why on demand, one button each, and a way to be rid of it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from app import theme
from app.widgets import paint
from app.widgets.buttons import IconButton, LinkButton, PushButton
from app.widgets.icon import draw_icon
from engine.advice.diagnosis.finding import Finding, Level, gain_sentence

MOST = 2
TONES: dict[Level, tuple[str, str]] = {
    "fatal": ("err", "circle-alert"),
    "wrong": ("err", "circle-alert"),
    "external": ("warn", "triangle-alert"),
    "misplaced": ("warn", "triangle-alert"),
    "capacity": ("accent", "circle-question-mark"),
    "note": ("accent", "circle-question-mark"),
}
"""(colour, icon) by level; the icon tells them apart without colours."""


class FindingStrip(QWidget):
    """acted(Finding), dismissed(Finding); resized() when it takes more or less height. Hidden while there is nothing to say."""

    acted = Signal(object)
    dismissed = Signal(object)
    resized = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("What limits the machine"))
        self._rows = tuple(_Row() for _ in range(MOST))
        self._quiet = _Quiet()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        for row in self._rows:
            column.addWidget(row)
            row.acted.connect(self.acted)
            row.dismissed.connect(self.dismissed)
            row.resized.connect(self.resized)
        column.addWidget(self._quiet)
        self.hide()

    def show_findings(self, findings: Sequence[Finding], balance: str = "", scores: str = "") -> None:
        """What is said now. balance: shown where there is no finding; scores: how far earlier predictions were off."""
        heads = [None if row.isHidden() else row.finding for row in self._rows]
        for i, row in enumerate(self._rows):
            row.show_finding(findings[i] if i < len(findings) else None, scores)
        quiet = "" if findings else balance
        was_quiet = self._quiet.text
        self._quiet.say(quiet)
        self.setVisible(bool(findings or quiet))
        keys = [None if one is None else one.key for one in heads]
        if keys != [None if row.isHidden() else row.finding and row.finding.key for row in self._rows] or bool(was_quiet) != bool(
            quiet
        ):
            self.resized.emit()

    @property
    def sentences(self) -> tuple[str, ...]:
        """As they are shown."""
        shown = tuple(row.sentence for row in self._rows if not row.isHidden())
        return shown or ((self._quiet.text,) if self._quiet.text else ())

    def row(self, i: int) -> _Row:
        """The row of the i-th finding."""
        return self._rows[i]


class _Row(QWidget):
    """One finding."""

    acted = Signal(object)
    dismissed = Signal(object)
    resized = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.finding: Finding | None = None
        self._scores = ""
        self._label, self._reason = _text(13, 500), _text(12, 400)
        self._reason.hide()
        self.why = LinkButton(self.tr("Why?"), px=12)
        self.button = PushButton("", height=28)
        self.close_button = IconButton("x", self.tr("Do not show this again until the next start"), size=24, icon_size=14)
        texts = QVBoxLayout()
        texts.setSpacing(2)
        texts.addWidget(self._label)
        texts.addWidget(self._reason)
        row = QHBoxLayout(self)
        row.setContentsMargins(42, 8, 8, 8)
        row.setSpacing(10)
        row.addLayout(texts, 1)
        row.addWidget(self.why)
        row.addWidget(self.button)
        row.addWidget(self.close_button)
        self.why.clicked.connect(self._on_why_clicked)
        self.button.clicked.connect(lambda: self.acted.emit(self.finding))
        self.close_button.clicked.connect(lambda: self.dismissed.emit(self.finding))
        theme.hub().changed.connect(self._restyle)
        self._restyle()
        self.hide()

    def show_finding(self, finding: Finding | None, scores: str) -> None:
        """Another finding, or the same with other numbers; None: none."""
        if finding is None:
            self.finding = None
            self.hide()
            return
        if self.finding is None or finding.key != self.finding.key:
            self._reason.hide()
        if finding != self.finding or scores != self._scores:
            self.finding, self._scores = finding, scores
            self._label.setText(self.sentence)
            self.setAccessibleName(self.sentence)
            self._reason.setText(self.reason)
            self.button.set_content(finding.action.text, "", "", "solid")
            self.button.setVisible(bool(finding.action.text))
            self.update()
        self.show()

    @property
    def sentence(self) -> str:
        """With what is to be gained, where that is known."""
        if self.finding is None:
            return ""
        gain = self.finding.gain
        return self.finding.sentence if gain is None else f"{self.finding.sentence} {gain_sentence(gain)}"

    @property
    def reason(self) -> str:
        """The numbers, and how far such predictions were off."""
        if self.finding is None:
            return ""
        why = self.finding.why
        why = f"{why[0].upper()}{why[1:]}."
        return f"{why} {self._scores}" if self.finding.gain is not None and self._scores else why

    @property
    def is_explained(self) -> bool:
        """Whether the numbers are shown."""
        return not self._reason.isHidden()

    def _on_why_clicked(self) -> None:
        self._reason.setVisible(self._reason.isHidden())
        self.resized.emit()

    def _restyle(self) -> None:
        self._label.setStyleSheet(f"color: {theme.color('text').name()}")
        self._reason.setStyleSheet(f"color: {theme.color('text2').name()}")
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.finding is None:
            return
        tone, icon = TONES[self.finding.level]
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        paint.rounded(painter, rect, 10, theme.color(tone, 0.10))
        draw_icon(painter, icon, 15, min(22.0, rect.height() / 2) - 8, 16, tone)


class _Quiet(QWidget):
    """The line that nothing is amiss."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.setFixedHeight(24)
        theme.hub().changed.connect(self.update)
        self.hide()

    def say(self, text: str) -> None:
        """Shows a line; an empty one hides it."""
        if text != self.text:
            self.text = text
            self.setAccessibleName(text)
            self.update()
        self.setVisible(bool(text))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.dot(painter, 5, self.height() / 2, 3.5, "ok")
        paint.text(painter, 16, self.height() / 2 + 4.5, self.text, 12, 500, "text2", max_width=self.width() - 20)


def _text(px: int, weight: int) -> QLabel:
    """Plain text, whole, since it says what to do."""
    label = QLabel()
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    label.setFont(theme.font(px, weight))
    return label
