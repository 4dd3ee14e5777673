"""DoctorPage: header, verdict, filter and checks, and beside them the pane of symptoms. Plain values in, signals out.

Its parts are public; `windows.doctor_controller` joins them to what runs the checks. The page lays out, shows and hides.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app import theme
from app.doctor.check_list import CheckList
from app.doctor.header import DoctorHeader
from app.doctor.rows import CheckView, summary, worst
from app.doctor.status_filter import StatusFilter
from app.doctor.symptom_pane import SymptomPane
from app.doctor.verdict_card import VerdictCard
from app.widgets import paint
from app.widgets.toast import Toast

PANEL, NARROW_PANEL = 420, 340
_LEAST_LIST = 420
_MINIMUM = (600, 360)


class DoctorPage(QWidget):
    """begin, add and end follow a run. A narrow page shows the pane of symptoms in the place of the checks."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.header = DoctorHeader()
        self.verdict = VerdictCard()
        self.filter = StatusFilter()
        self.checks = CheckList()
        self.symptoms = SymptomPane()
        self._when = ""
        self._shown_last = ""
        self._running: tuple[int, int] | None = None
        self._lay_out()
        self.toast = Toast(self._left)
        self.setMinimumSize(*_MINIMUM)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setAccessibleName(self.tr("Doctor"))
        self.header.symptoms_toggled.connect(lambda _on: self._fit())
        self.filter.changed.connect(self.checks.show_only)
        self.verdict.shown_wanted.connect(self._on_shown_wanted)
        self.checks.show_only(self.filter.statuses)
        theme.hub().changed.connect(self.update)
        self._summarise()

    def _lay_out(self) -> None:
        self._left = QWidget()
        left = QVBoxLayout(self._left)
        left.setContentsMargins(16, 13, 0, 0)
        left.setSpacing(12)
        top = QVBoxLayout()
        top.setContentsMargins(0, 0, 16, 0)
        top.setSpacing(12)
        top.addWidget(self.verdict)
        top.addWidget(self.filter)
        left.addLayout(top)
        left.addWidget(self.checks, 1)
        self._panel = _Panel(self.symptoms)
        body = QHBoxLayout()
        body.setContentsMargins(0, 0, 0, 0)
        body.setSpacing(0)
        body.addWidget(self._left, 1)
        body.addWidget(self._panel)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.header)
        column.addLayout(body, 1)
        self._fit()

    # --- a run -------------------------------------------------------------------------------------------------------

    def begin(self, n_total: int) -> None:
        """A run of n_total checks begins."""
        self._running = (0, n_total)
        self.checks.begin()
        self.header.show_running(True)
        self._summarise()

    def add(self, view: CheckView, n_done: int) -> None:
        """A result; n_done checks are done."""
        if self._running is not None:
            self._running = (n_done, self._running[1])
        self.checks.add(view)
        self._summarise()

    def end(self, when: str, kept: Collection[str] = ()) -> None:
        """The run is over. when: the time as a sentence; kept: ids of checks that were not part of it and still hold."""
        self._running = None
        self._when = when
        self.checks.end(kept)
        self.header.show_running(False)
        self._summarise()

    def show_all(self, views: Sequence[CheckView], when: str) -> None:
        """The results of a run that nobody watched."""
        self.begin(len(views))
        for n, view in enumerate(views, 1):
            self.add(view, n)
        self.end(when)

    def _summarise(self) -> None:
        views = self.checks.views
        self.filter.count(views)
        if self._running is None:
            self.verdict.show_summary(summary(views, self._when))
        else:
            done, total = self._running
            self.verdict.show_summary(summary(views, self._when, done, total), done / total if total else 0.0)

    # --- layout ------------------------------------------------------------------------------------------------------

    def show_symptoms(self, shown: bool = True) -> None:
        """The pane at the right."""
        self.header.set_symptoms(shown)
        self._fit()

    def reveal(self, id: str) -> bool:
        """The row of a check; False where there is none."""
        if not self._has_room:
            self.header.set_symptoms(False)
            self._fit()
        return self.checks.reveal(id)

    def _on_shown_wanted(self) -> None:
        """The worst rows one after the other, as they stand on the page."""
        views = self.checks.views
        state = worst(views)
        ids = list(dict.fromkeys(view.id for view in views if view.status == state))
        at = ids.index(self._shown_last) + 1 if self._shown_last in ids else 0
        self._shown_last = ids[at % len(ids)]
        self.checks.reveal(self._shown_last)

    @property
    def _has_room(self) -> bool:
        return self.width() - NARROW_PANEL >= _LEAST_LIST

    def _fit(self) -> None:
        shown = self.header.symptoms.isChecked()
        self._panel.setVisible(shown)
        self._left.setVisible(not shown or self._has_room)
        if self._has_room:
            self._panel.setFixedWidth(max(NARROW_PANEL, min(PANEL, self.width() - _LEAST_LIST - 160)))
        else:
            self._panel.setMinimumWidth(0)
            self._panel.setMaximumWidth(16_777_215)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit()

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), theme.color("bg"))


class _Panel(QWidget):
    def __init__(self, content: QWidget) -> None:
        super().__init__()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        column = QVBoxLayout(self)
        column.setContentsMargins(1, 0, 0, 0)
        column.addWidget(content)
        theme.hub().changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme.color("panel"))
        paint.line(painter, 0.5, 0, 0.5, self.height())
