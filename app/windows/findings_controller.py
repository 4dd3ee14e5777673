"""FindingsController: joins the diagnosis to the window: the strip on the Monitors page, a line beside the chat, and what its
buttons open. The diagnosis is made with the first model: without one there is nothing to judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app.bridge.op import Op
from app.i18n import tr
from app.windows.main_window import MainWindow
from app.windows.parts import Parts
from engine.api.commands import ApplyPlacement, PinWorkers
from engine.api.events import Event, ModelReady

if TYPE_CHECKING:
    from app.monitors.finding_strip import FindingStrip
    from app.ops.diagnosis_ops import DiagnosisOps, Preview
    from engine.advice.diagnosis.finding import Finding
    from engine.api.values import Placement

MONITORS, PLACEMENT, DOCTOR = "monitors", "placement", "doctor"


class FindingsController(QObject):
    """Lives as long as the window. ops, strip: None until there is a model, and until the Monitors page was shown."""

    def __init__(self, window: MainWindow, parts: Parts) -> None:
        super().__init__(window)
        self._window, self._parts = window, parts
        self.ops: DiagnosisOps | None = None
        self.strip: FindingStrip | None = None
        self._page: QWidget | None = None
        window.doctor.findings = self.said
        parts.bridge.happened.connect(self._on_event)
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

            parts = self._parts
            self.ops = DiagnosisOps(parts.bridge, parts.monitors, parts.ui, parts.worker, parts.paths.data, parent=self)
            self.ops.changed.connect(self.refresh)
            self.ops.preview_requested.connect(self._on_preview)
            self.ops.action_requested.connect(self._on_action)
            self.ops.take(event)
            self._make_strip()

    def _on_page_made(self, page: QWidget) -> None:
        self._page = page
        self._make_strip()

    def _make_strip(self) -> None:
        if self.ops is None or self._page is None or self.strip is not None:
            return
        from app.monitors.finding_strip import FindingStrip
        from app.monitors.monitors_page import MonitorsPage

        if not isinstance(self._page, MonitorsPage):
            return
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
        findings = self.ops.findings
        if self.strip is not None:
            self.strip.show_findings(findings, self.ops.balance, self.ops.scores.sentence())
        tone = "text2"
        if findings and findings[0].is_alarm:
            tone = "err" if findings[0].level in ("fatal", "wrong") else "warn"
        self._window.page.side_panel.set_finding(self.ops.line, tone)
        self._window.doctor.refresh()

    def _on_preview(self, preview: Preview) -> None:
        self._window.show_page(PLACEMENT)
        controller = self._window.placement.controller()
        if controller.desk.path != preview.path:
            controller.open(preview.path)
        controller.preview.show(preview.path, preview.placement, preview.text)
        self._window.show_notice(tr("Window", "This is a proposal: look at it, then apply it, or undo it with Ctrl+Z."))

    def _on_action(self, finding: Finding) -> None:
        """What needs no placement to be shown."""
        does = finding.action.does
        if does == "doctor" and DOCTOR in self._window.doors:
            self._window.show_page(DOCTOR)
        elif does == "context":
            self._window.show_page(PLACEMENT)
            self._window.placement.controller().show_pane("context")
        elif does in ("pin", "tune"):
            self._window.workers.open()
        elif does == "repin":
            self._run(PinWorkers(self._parts.bridge.new_id(), finding.action.target))
        elif does == "replace" and (placement := self._placement()) is not None:
            self._run(ApplyPlacement(self._parts.bridge.new_id(), placement))
        elif does in ("make room", "reload", "relieve", "rebalance"):
            self._window.show_page(PLACEMENT)
        elif does == "verify":
            self._window.show_notice(
                tr("Window", "Compare the file's SHA-256 with the one its page tells, or get the file again.")
            )

    def _placement(self) -> Placement | None:
        """As the loaded model lies."""
        model = self._parts.bridge.state.model
        return None if model is None else model.placement

    def _run(self, command: PinWorkers | ApplyPlacement) -> None:
        """Puts back what others have moved; what the engine refuses is told in its words."""
        Op(self._parts.bridge, command).failure(lambda event: self._window.show_notice(event.message)).run()
