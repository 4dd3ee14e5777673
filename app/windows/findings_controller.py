"""FindingsController: joins the diagnosis to the window: the strip on the Monitors page, a line beside the chat, and what its
buttons open. The diagnosis is made with the first model: without one there is nothing to judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app.windows.main_window import MainWindow
from app.windows.parts import Parts
from engine.api.events import Event, ModelReady

if TYPE_CHECKING:
    from app.monitors.finding_strip import FindingStrip
    from app.monitors.monitors_page import MonitorsPage
    from app.ops.diagnosis_ops import DiagnosisOps
    from app.windows.finding_actions import FindingActions

MONITORS = "monitors"
OF_CARDS = ("R-LOST", "R-THERM-G", "R-BRAKE")
"""What the page would say of a card beside."""


class FindingsController(QObject):
    """Lives as long as the window. ops, actions, strip: None until there is a model, and until the Monitors page was shown."""

    def __init__(self, window: MainWindow, parts: Parts) -> None:
        super().__init__(window)
        self._window, self._parts = window, parts
        self.ops: DiagnosisOps | None = None
        self.actions: FindingActions | None = None
        self.strip: FindingStrip | None = None
        self._page: MonitorsPage | None = None
        window.doctor.findings = self.said
        parts.bridge.happened.connect(self._on_event)
        parts.monitors.replay_changed.connect(self.refresh)
        if MONITORS in window.doors:
            window.doors[MONITORS].made.connect(self._on_page_made)

    def said(self) -> Mapping[str, str]:
        """What is said now, by rule: for questions about symptoms. Of several of one rule, what matters most."""
        found: dict[str, str] = {}
        for one in () if self.ops is None else self.ops.findings:
            found.setdefault(one.id, one.sentence)
        return found

    def _on_event(self, event: Event) -> None:
        if self.ops is None and isinstance(event, ModelReady):
            # Not with the module: the first frame does not wait for it.
            from app.ops.diagnosis_ops import DiagnosisOps
            from app.windows.finding_actions import FindingActions

            parts = self._parts
            self.ops = DiagnosisOps(parts.bridge, parts.monitors, parts.ui, parts.worker, parts.paths.data, parent=self)
            self.ops.changed.connect(self.refresh)
            self.actions = actions = FindingActions(self._window, parts, self)
            self.ops.preview_requested.connect(actions.show)
            self.ops.action_requested.connect(actions.follow)
            self.ops.take(event)
            self._make_strip()

    def _on_page_made(self, page: QWidget) -> None:
        from app.monitors.monitors_page import MonitorsPage

        self._page = page if isinstance(page, MonitorsPage) else None
        self._make_strip()

    def _make_strip(self) -> None:
        if self.ops is None or self._page is None or self.strip is not None:
            return
        from app.monitors.finding_strip import FindingStrip

        self.strip = FindingStrip()
        self.strip.acted.connect(self.ops.act)
        self.strip.dismissed.connect(self.ops.dismiss)
        self.strip.resized.connect(self._page.fit_notices)
        self._page.set_strip(self.strip)
        self.refresh()

    def refresh(self) -> None:
        """Shows what is said now."""
        if self.ops is None:
            return
        from engine.advice.diagnosis.window import spoken

        findings = self.ops.findings
        then = self._parts.monitors.replayed is not None  # the page shows another time, of which nothing is said
        if self.strip is not None:
            self.strip.show_findings(() if then else findings, "" if then else self.ops.balance, self.ops.scores.sentence())
        if self._page is not None:
            self._page.told = frozenset(spoken(one.about) for one in findings if one.id in OF_CARDS)
            self._page.fit_notices()
        tone = "text2"
        if findings and findings[0].is_alarm:
            tone = "err" if findings[0].level in ("fatal", "wrong") else "warn"
        self._window.page.side_panel.set_finding(self.ops.line, tone)
        self._window.doctor.refresh()
