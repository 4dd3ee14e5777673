"""DoctorHeader: the page's name, whether few or all checks run, the report, the pane of symptoms, and Run again."""

from __future__ import annotations

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QWidget

from app import theme
from app.widgets import paint
from app.widgets.buttons import PushButton
from app.widgets.chip import Chip
from app.widgets.elided_label import ElidedLabel

HEIGHT = 57
_ROOMY = 760


class DoctorHeader(QWidget):
    """all_chosen(bool), report_requested, symptoms_toggled(bool), run_requested."""

    all_chosen = Signal(bool)
    report_requested = Signal()
    symptoms_toggled = Signal(bool)
    run_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedHeight(HEIGHT)
        self._title = ElidedLabel(self.tr("Doctor"), 16, 600)
        self._subtitle = ElidedLabel(self.tr("Looks, never changes anything"), 12, 400, "text3")
        self.quick = Chip(self.tr("Quick"), height=28)
        self.all = Chip(self.tr("All checks"), height=28)
        self.symptoms = Chip(self.tr("By symptom"), "stethoscope", height=28)
        self.report = PushButton(self.tr("Copy report"), icon_name="copy")
        self.run = PushButton(self.tr("Run again"), "primary", icon_name="refresh-cw", keys="F5")
        self.quick.setToolTip(self.tr("What can be told within two seconds"))
        self.all.setToolTip(self.tr("Also what has to be measured, which takes longer"))
        self.symptoms.setToolTip(self.tr("From what you see to its cause"))
        self.report.setToolTip(self.tr("The checks as text, without names of users, folders of yours or text of chats"))
        for chip in (self.quick, self.all, self.symptoms):
            chip.setCheckable(True)
            chip.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self._lay_out()
        self.quick.clicked.connect(lambda: self._choose(all_checks=False))
        self.all.clicked.connect(lambda: self._choose(all_checks=True))
        self.symptoms.toggled.connect(self._on_symptoms_toggled)
        self.report.clicked.connect(self.report_requested)
        self.run.clicked.connect(self.run_requested)
        theme.hub().changed.connect(self.update)
        self.show_choice(all_checks=False)

    def _lay_out(self) -> None:
        row = QHBoxLayout(self)
        row.setContentsMargins(18, 0, 16, 1)
        row.setSpacing(8)
        self._title.setFixedWidth(self._title.sizeHint().width())
        row.addWidget(self._title)
        row.addSpacing(6)
        row.addWidget(self._subtitle, 1)
        row.addStretch(1)
        row.addWidget(self.quick)
        row.addWidget(self.all)
        row.addSpacing(8)
        row.addWidget(self.symptoms)
        row.addSpacing(8)
        row.addWidget(self.report)
        row.addWidget(self.run)
        row.setSizeConstraint(QHBoxLayout.SizeConstraint.SetNoConstraint)

    def show_choice(self, *, all_checks: bool) -> None:
        """Which of both runs."""
        for chip, on in ((self.quick, not all_checks), (self.all, all_checks)):
            chip.setChecked(on)
            chip.set_active(on)

    def show_running(self, running: bool) -> None:
        """While it runs it need not be asked for."""
        self.run.setEnabled(not running)
        self.run.set_content(self.tr("Running…") if running else self.tr("Run again"), "refresh-cw", "F5", "primary")

    def set_symptoms(self, shown: bool) -> None:
        """Whether the pane is there."""
        self.symptoms.setChecked(shown)

    def _choose(self, *, all_checks: bool) -> None:
        self.show_choice(all_checks=all_checks)
        self.all_chosen.emit(all_checks)

    def _on_symptoms_toggled(self, on: bool) -> None:
        self.symptoms.set_active(on)
        self.symptoms_toggled.emit(on)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._subtitle.setVisible(self.width() >= 900)
        self.report.setVisible(self.width() >= _ROOMY)

    def minimumSizeHint(self) -> QSize:
        return QSize(540, HEIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme.color("bg"))
        paint.line(painter, 0, HEIGHT - 0.5, self.width(), HEIGHT - 0.5)
