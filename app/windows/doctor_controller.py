"""DoctorController: the doctor's page over its checks: runs, results as they come, the report, symptoms, and links to rows."""

from __future__ import annotations

import getpass
import platform
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from PySide6.QtCore import QDateTime, QObject, Signal, qVersion
from PySide6.QtGui import QGuiApplication

import engine
from app.actions.registry import Condition
from app.doctor.doctor_page import DoctorPage
from app.doctor.report import Private, report_text
from app.doctor.rows import STATUSES, CheckView, FixView
from app.doctor.symptom_views import LinkView
from app.i18n import filled, tr
from app.ops.calibrate_ops import CalibrateOps
from app.ops.doctor_ops import DoctorOps
from app.widgets.toast import Toast
from app.windows.doctor_symptoms import DoctorSymptoms
from app.windows.page_door import PageController
from app.windows.parts import Parts
from engine.advice.doctor.check import CheckResult
from engine.advice.symptom_walk import Evidence, Said
from engine.advice.symptoms import TREE

MEASURED = "D-MEM-3"
"""The row about what was measured of the memory, which has the button that measures."""


class DoctorController(PageController):
    """link_wanted(LinkView): an action that is not on this page."""

    link_wanted = Signal(object)

    def __init__(
        self,
        parts: Parts,
        ops: DoctorOps,
        calibrate: CalibrateOps,
        figures: Callable[[], Mapping[str, float]],
        findings: Callable[[], Mapping[str, str]],
        parent: QObject | None = None,
    ) -> None:
        """findings: what the live diagnosis says now, by rule."""
        super().__init__(parent)
        self._parts, self._ops, self._calibrate = parts, ops, calibrate
        self._figures, self._findings = figures, findings
        self._all = False
        self._reveal = ""
        self.page = DoctorPage()
        self.symptoms = DoctorSymptoms(self.page.symptoms, TREE, self.evidence, self)
        self._connect()
        self._show_known()

    def _connect(self) -> None:
        header, ops = self.page.header, self._ops
        header.run_requested.connect(self.run)
        header.all_chosen.connect(self._on_all_chosen)
        header.report_requested.connect(self.copy_report)
        header.symptoms_toggled.connect(self._on_symptoms_toggled)
        self.symptoms.link_chosen.connect(self._on_link)
        ops.began.connect(self.page.begin)
        ops.arrived.connect(lambda result, done: self.page.add(view_of(result), done))
        ops.ended.connect(self._on_ended)
        self.page.checks.acted.connect(lambda _id: self.measure())
        self._calibrate.changed.connect(self._show_measuring)
        self._calibrate.ended.connect(self._on_measured)
        self._calibrate.failed.connect(self.notice)
        self._show_measuring()

    def _show_known(self) -> None:
        known = [view_of(result) for result in self._ops.results]
        if known:
            self.page.show_all(known, self._when())
        if self._ops.running:
            self.page.begin(self._ops.progress[1])

    # --- what the door asks --------------------------------------------------------------------------------------------

    @property
    def view(self) -> DoctorPage:
        """The page."""
        return self.page

    @property
    def toast(self) -> Toast:
        """Of the page."""
        return self.page.toast

    def handlers(self) -> dict[str, Callable[[], object]]:
        """What the actions of the page do."""
        return {
            "run_doctor": self.run,
            "run_all_checks": lambda: self._on_all_chosen(all_checks=True),
            "copy_doctor_report": self.copy_report,
            "doctor_symptoms": self.show_symptom,
            "measure_machine": self.measure,
        }

    def conditions(self) -> set[Condition]:
        """They need nothing but the page."""
        return {"doctor_shown"}

    # --- runs --------------------------------------------------------------------------------------------------------

    def shown(self, on: bool) -> None:
        """The page came into sight or left it: the first time its checks run by themselves."""
        if on and not self._ops.running and not self._ops.results:
            self.run()
        elif on:
            self.symptoms.refresh()

    def run(self) -> None:
        """The checks that are chosen, once more."""
        self._ops.run(all_checks=self._all)

    def _on_all_chosen(self, all_checks: bool) -> None:
        self._all = all_checks
        self.page.header.show_choice(all_checks=all_checks)
        self.run()

    def _on_ended(self) -> None:
        self.page.end(self._when(), {result.id for result in self._ops.results})
        self.symptoms.refresh()
        if self._reveal:
            id, self._reveal = self._reveal, ""
            self._reveal_known(id)

    def _when(self) -> str:
        ended_s = self._ops.ended_s
        if ended_s is None:
            return ""
        at = QDateTime.fromSecsSinceEpoch(int(ended_s)).toString("HH:mm")
        return filled(tr("Doctor", "checked at %1"), at)

    # --- measuring ---------------------------------------------------------------------------------------------------

    def measure(self) -> None:
        """Measures this machine for estimates, or stops that."""
        if self._calibrate.running:
            self._calibrate.stop()
        else:
            self._calibrate.start()

    def _show_measuring(self) -> None:
        seconds = filled(tr("Doctor", "Stop measuring (%1 s)"), self._calibrate.seconds)
        self.page.checks.set_action(MEASURED, seconds if self._calibrate.running else tr("Doctor", "Measure this machine"))

    def _on_measured(self, sentence: str) -> None:
        self.notice.emit(sentence)
        self.run()

    # --- links -------------------------------------------------------------------------------------------------------

    def reveal(self, id: str) -> None:
        """Shows the row of a check; if it has not run yet, all checks run first."""
        if not self.page.reveal(id):
            self._reveal = id
            self._all = True
            self.page.header.show_choice(all_checks=True)
            self.run()

    def look_again(self, id: str) -> None:
        """Shows the row of a check with what it finds now."""
        if not self.page.reveal(id):
            self.reveal(id)
        elif not self._ops.running:
            self.run()

    def _reveal_known(self, id: str) -> None:
        if not self.page.reveal(id):
            self.page.toast.show_message(tr("Doctor", "This check has nothing to say on this machine."))

    def show_symptom(self, symptom: str = "") -> None:
        """The pane of symptoms, with one of them begun."""
        self.page.show_symptoms()
        self.symptoms.choose(symptom)

    def _on_link(self, link: LinkView) -> None:
        if link.kind == "check":
            self.reveal(link.target)
        elif link.kind == "calibrate":
            self.reveal(MEASURED)
            self._calibrate.start()
        else:
            self.link_wanted.emit(link)

    def _on_symptoms_toggled(self, on: bool) -> None:
        if on:
            self.symptoms.refresh()

    # --- what is known -----------------------------------------------------------------------------------------------

    def evidence(self) -> Evidence:
        """For questions about symptoms."""
        return Evidence(said_by(self._ops.results), self._findings(), self._figures())

    def copy_report(self) -> None:
        """The report goes to the clipboard."""
        QGuiApplication.clipboard().setText(self.report())
        self.page.toast.show_message(tr("Doctor", "The report was copied. It names no user, no folder of yours and no chat."))

    def report(self) -> str:
        """All results as text that may be shown to others."""
        return report_text(self._heading(), [view_of(result) for result in self._ops.results], self._private())

    def _heading(self) -> list[str]:
        stamp = engine.build()
        lines = [
            f"Layerdeck {engine.VERSION}{f' (build {stamp})' if stamp else ''}",
            f"Python {platform.python_version()}, Qt {qVersion()} on {QGuiApplication.platformName()}",
        ]
        model = self._parts.bridge.state.model
        if model is not None:
            lines.append(f"Model: {model.architecture}, {model.quant}, {model.n_params / 1e9:.2f} billion parameters")
        return [*lines, self._when()]

    def _private(self) -> Private:
        paths = self._parts.paths
        folders = (str(paths.config), str(paths.data), str(paths.state), *self._parts.settings.values.engine.model_folders)
        return Private(str(Path.home()), _user(), socket.gethostname(), folders)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def view_of(result: CheckResult) -> CheckView:
    """A result as the page shows it."""
    fixes = tuple(FixView(fix.command, fix.changes, fix.undo) for fix in result.fixes)
    return CheckView(result.id, result.group, result.title, result.status, result.observed, result.why, fixes, result.evidence)


def said_by(results: tuple[CheckResult, ...]) -> dict[str, Said]:
    """What each check says: the worst of its results."""
    said: dict[str, Said] = {}
    for result in sorted(results, key=lambda one: STATUSES.index(one.status)):
        words = result.why if result.status in ("n/a", "unknown") and result.why else f"{result.observed.rstrip('.')}."
        said.setdefault(result.id, Said(result.status, f"{result.title}: {words}"))
    return said
