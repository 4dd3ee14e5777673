"""DoctorDoor: the door to the doctor's page; before anybody asks for it, the quick checks run behind the window.

What they find is a dot on the rail and at most one warning on the page of the first run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtWidgets import QWidget

from app.actions.tables import DOCTOR
from app.i18n import tr
from app.ops.doctor_context import make_context
from app.ops.doctor_figures import DoctorFigures
from app.ops.doctor_ops import DoctorOps, probes
from app.windows.loop_watch import LoopWatch
from app.windows.page_door import PageDoor
from app.windows.parts import Parts

if TYPE_CHECKING:
    from app.ops.doctor_ops import Checks
    from app.windows.doctor_controller import DoctorController
    from engine.advice.doctor.check import CheckResult
    from engine.advice.doctor.context import Context

AFTER_START_MS = 3000
"""Later than the first frame and the load of the last model begin, sooner than anybody looks."""
AFTER_LOAD_MS = 1500
OWNER = "doctor"
SENSORS_S = 1.0
"""The sensors are read this often while the page is shown."""


class DoctorDoor(PageDoor["DoctorController"]):
    """dot_changed(colour token, empty for none). warning_changed(sentence, id of its check, words of the link; empty for none).
    link_wanted(LinkView): an action of another page."""

    dot_changed = Signal(str)
    warning_changed = Signal(str, str, str)
    link_wanted = Signal(object)

    def __init__(self, parts: Parts, window: QWidget) -> None:
        super().__init__(self._behind, DOCTOR, window)
        self._parts = parts
        self._started = False
        self._figures = DoctorFigures(parts.bridge, self)
        self._loop = LoopWatch(self)
        self._visible = False
        self._rules: frozenset[str] = frozenset()
        self.findings: Callable[[], Mapping[str, str]] = dict
        self.ops = DoctorOps(parts.ui, self._context, self._own_checks, probes=probes, parent=self)
        self.calibrate = parts.calibrate
        self.ops.ended.connect(self._on_ended)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._run_quick)
        parts.models.ready.connect(self._on_ready)
        self._window_seen = self._page_shown = False

    def _behind(self, parent: QObject) -> DoctorController:
        from app.windows.doctor_controller import DoctorController

        controller = DoctorController(
            self._parts, self.ops, self.calibrate, self._figures.figures, lambda: self.findings(), parent
        )
        controller.link_wanted.connect(self.link_wanted)
        return controller

    def shown(self, on: bool) -> None:
        """The page came into sight or left it."""
        super().shown(on)
        self._page_shown = on
        self._look()

    def window_seen(self, on: bool) -> None:
        """The window is on the screen, or not any more."""
        self._window_seen = on
        self._loop.watch(on)
        self._look()

    def _look(self) -> None:
        """Findings, and checks of cards, live on readings: they are taken while the page is seen."""
        visible = self._window_seen and self._page_shown
        if visible != self._visible:
            self._visible = visible
            self._parts.monitors.set_watching(OWNER, SENSORS_S if visible else 0.0)

    def refresh(self) -> None:
        """What the live diagnosis says has changed. New numbers of the same rules do not move what somebody reads."""
        rules = frozenset(self.findings())
        if self._visible and rules != self._rules:
            self._rules = rules
            self.controller().symptoms.refresh()

    def start(self) -> None:
        """The window is up: the quick checks run in a while, and again after each model that was loaded."""
        self._started = True
        self._timer.start(AFTER_START_MS)

    def close(self) -> None:
        """Ends what runs."""
        self._timer.stop()
        self.ops.close()
        self.calibrate.stop()
        self._loop.close()

    def _on_ready(self, _info: object) -> None:
        if self._started:
            self._timer.start(AFTER_LOAD_MS)

    def _run_quick(self) -> None:
        if not self.ops.running:
            self.ops.run()

    def _on_ended(self) -> None:
        results = self.ops.results
        states = {result.status for result in results}
        self.dot_changed.emit("err" if "fail" in states else "warn" if "warn" in states else "")
        self.warning_changed.emit(*warning_of(results))

    def _context(self) -> Callable[[], Context]:
        parts = self._parts
        folders = tuple(Path(folder) for folder in parts.settings.values.engine.model_folders)
        return partial(make_context, self._figures.known, parts.bridge.state.model, parts.paths.data, folders)

    def _own_checks(self) -> Checks:
        from app.doctor.qt_checks import qt_checks
        from app.doctor.qt_facts import WaitFact, read_facts

        worst = self._loop.worst
        return qt_checks(read_facts(WaitFact(worst.seconds, worst.worked_s, worst.stack)))


def warning_of(results: tuple[CheckResult, ...]) -> tuple[str, str, str]:
    """The one warning that is worth a line at the first start: the sentence, the id of its check, the words that lead there.
    Problems first, then what a line can fix. All empty when there is none."""
    ranked = sorted(
        (result for result in results if result.status in ("fail", "warn")),
        key=lambda result: (result.status != "fail", not result.fixes),
    )
    if not ranked:
        return "", "", ""
    first = ranked[0]
    link = tr("Welcome", "Show how to fix it") if first.fixes else tr("Welcome", "Show more")
    return f"{first.title}: {first.observed.rstrip('.')}. {first.why}".strip(), first.id, link
