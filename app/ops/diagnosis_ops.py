"""DiagnosisOps: what limits the machine, from the readings that the monitors take anyway; what could be done, worked out
beside the window; and how predictions turned out. It looks only while somebody watches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from PySide6.QtCore import QObject, QTimer, Signal

from app.bridge.engine_bridge import EngineBridge
from app.bridge.op import Op
from app.bridge.ui_thread import UiThread
from app.errors import UserFacingError
from app.ops.diagnosis_facts import Asked, DiagnosisFacts
from app.ops.monitor_ops import MonitorOps
from engine.advice.diagnosis.diagnose import balance
from engine.advice.diagnosis.diagnostician import Diagnostician
from engine.advice.diagnosis.finding import PREVIEWS, Action, Finding, Gain, gain_sentence
from engine.advice.diagnosis.measured import measured_of, prompts_measured_of
from engine.advice.diagnosis.window import Reading
from engine.advice.scores import Scores
from engine.api.commands import AskHoldings
from engine.api.events import Event, Holdings, ModelReady, PlacementApplied
from engine.api.values import HardwareSnapshot, ModelInfo, Placement

LOOK_MS = 1000
SCORED = ("relieve", "rebalance")
"""Those that are proposed for their speed."""
AGAIN_S = 60.0
"""What is to be gained is worked out again so often while it is shown: the conversation grows meanwhile."""
PAGES_S = 30.0
"""Between two looks at where pages lie."""
SETTLED_READINGS = 5
"""Of decoding, after a placement was applied, before its speed counts."""
ALIKE_TOKENS = 2048
"""An answer with so much more before it is no like one."""


@dataclass(frozen=True, slots=True)
class Preview:
    """A placement to be looked at in the editor. path: of the model; text: the step's name in the history there; sentence:
    that with what it brings or costs; info: of the model as it is, or was, loaded; lost: the device that is gone, or ""."""

    path: str
    placement: Placement
    text: str
    sentence: str
    info: ModelInfo
    lost: str = ""


@dataclass(slots=True)
class _Tried:
    """A preview that somebody may apply. before_tok_s: how fast it was with so many tokens in the cache."""

    gain: Gain
    before_tok_s: float
    kv_tokens: int
    applied: bool = False


class Proposes(Protocol):
    """`diagnosis_proposals.Proposals`, or a scripted one in tests. Called on worker threads."""

    def gain(self, asked: Asked) -> Gain | None:
        """What moving work would bring. Raises: UserFacingError."""

    def ceilings(self) -> tuple[Mapping[str, float], int]:
        """Bytes a second by node, and tokens of a prompt at once. Raises: UserFacingError."""


def planner_proposals() -> Proposes:
    """Those of the planner. Not with the module: it brings half of the engine along, which a window must not wait for."""
    from app.ops.diagnosis_proposals import Proposals

    return Proposals()


class DiagnosisOps(QObject):
    """changed(): other findings, or other words; preview_requested(Preview); action_requested(Finding): what others do for it."""

    changed = Signal()
    preview_requested = Signal(object)
    action_requested = Signal(object)

    def __init__(
        self,
        bridge: EngineBridge,
        monitors: MonitorOps,
        ui: UiThread,
        pool: ThreadPoolExecutor,
        folder: Path,
        proposals: Callable[[], Proposes] = planner_proposals,
        parent: QObject | None = None,
    ) -> None:
        """folder: where scores are kept."""
        super().__init__(parent)
        self._bridge, self._monitors, self._ui, self._pool = bridge, monitors, ui, pool
        self._make_proposals = proposals
        self._proposals: Proposes | None = None
        self._facts, self._doctor, self.scores = DiagnosisFacts(), Diagnostician(), Scores(folder)
        self._gains: dict[tuple[str, str], tuple[float, Gain | None]] = {}
        self._asking: tuple[str, str] | None = None
        self._number = 0
        self._tried: _Tried | None = None
        self._pages_s = -PAGES_S
        self._shown: tuple[Finding, ...] = ()
        self._line = ""
        self._timer = QTimer(self)
        self._timer.setInterval(LOOK_MS)
        self._timer.timeout.connect(self._on_timer)
        bridge.happened.connect(self._on_event)
        monitors.read.connect(self._on_read)

    # --- what is said ------------------------------------------------------------------------------------------------

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Two at most, what matters most first, with what is to be gained where that is known."""
        return self._shown

    @property
    def line(self) -> str:
        """One line: the first finding, else how the time of a step is shared; "" where there is nothing to tell."""
        return self._shown[0].sentence if self._shown else self._line

    @property
    def balance(self) -> str:
        """How the time of a step is shared; "" while nothing is decoded."""
        return self._line

    def dismiss(self, finding: Finding) -> None:
        """It is not shown again in this session."""
        self._doctor.dismiss(finding)
        self._show()

    def act(self, finding: Finding) -> None:
        """What its button does. Nothing is moved by it: a placement is shown in the editor, to be applied or undone there."""
        info, gain = self._facts.model, finding.gain
        if info is None or gain is None:
            self.action_requested.emit(finding)
            return
        self._try(finding.action, gain)
        lost = finding.action.device if finding.action.does == "without" else ""
        self.preview_requested.emit(Preview(info.path, gain.placement, gain.text, gain_sentence(gain), info, lost))

    def _try(self, action: Action, gain: Gain) -> None:
        """What comes of it will be held against what was predicted, where that was a matter of speed."""
        if action.does not in SCORED or action.nbytes or gain.prompts:
            return
        pace = self._doctor.window.works_mean(lambda one: one.decode_tok_s)
        works = self._doctor.window.decoding
        if pace is not None and works and works[-1].n_answers == 1:
            self._tried = _Tried(gain, pace, works[-1].kv_used_tokens)

    # --- events ------------------------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """An event that came before this was made."""
        self._on_event(event)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Holdings):
            self._pages_s = time.monotonic()
        if self._facts.take(event):
            self._pages_s = -PAGES_S
            self._doctor.forget()
            self._gains.clear()
            self._number += 1
            self._asking = None
            if isinstance(event, PlacementApplied | ModelReady):
                self._on_lies(event.info.placement)
            if isinstance(event, ModelReady):
                self._ask_ceilings()
            self._show()

    def _on_lies(self, placement: Placement | None) -> None:
        tried = self._tried
        if tried is not None:
            tried.applied = placement is not None and placement.units == tried.gain.placement.units
            if not tried.applied:
                self._tried = None

    def _on_read(self, snapshot: HardwareSnapshot) -> None:
        if self._facts.now.topology is None:
            self._facts.now = replace(self._facts.now, topology=self._monitors.topology)
        self._doctor.push(Reading(snapshot, self._monitors.now.work), self._facts.now)
        self._facts.watch(self._doctor.window)
        self._ask_pages()
        self._score()
        self._show()
        if not self._timer.isActive():
            self._timer.start()

    def _ask_pages(self) -> None:
        """Where the model's pages lie, now and then, where there are several nodes and nobody else has asked."""
        topology = self._facts.now.topology
        if self._facts.now.info is None or topology is None or len(topology.usable_nodes) < 2:
            return
        if time.monotonic() - self._pages_s >= PAGES_S:
            self._pages_s = time.monotonic()
            Op(self._bridge, AskHoldings(self._bridge.new_id())).failure(lambda _event: None).run()

    def _on_timer(self) -> None:
        """Readings that stop are told; where nobody watches any more they were not meant to come."""
        if not self._monitors.period_s:
            self._timer.stop()
            self._doctor.forget()
            self._show()
            return
        newest = self._doctor.window.newest
        if newest is not None:
            now = time.monotonic()
            if now - newest.time_s > LOOK_MS / 1000:
                self._doctor.look(self._facts.now, now)
                self._show()

    def _show(self) -> None:
        found = tuple(self._with_gain(one) for one in self._doctor.findings)
        line = balance(self._doctor.window) if self._facts.now.info is not None else ""
        if found != self._shown or line != self._line:
            self._shown, self._line = found, line
            self.changed.emit()

    # --- what is to be gained ----------------------------------------------------------------------------------------

    def _with_gain(self, finding: Finding) -> Finding:
        if finding.action.does not in PREVIEWS:
            return finding
        known = self._gains.get(finding.key)
        now = time.monotonic()
        if (known is None or now - known[0] > AGAIN_S) and self._asking is None:
            self._ask_gain(finding, now)
        if known is None and self._asking is not None:
            return replace(finding, action=Action())  # until it is worked out
        if known is None or known[1] is None:
            return replace(finding, action=finding.action.otherwise or Action())  # no button that brings nothing
        return replace(finding, gain=known[1])

    def _ask_gain(self, finding: Finding, now: float) -> None:
        info, action, window = self._facts.model, finding.action, self._doctor.window
        measured = prompts_measured_of(window) if action.target == "prompts" else measured_of(window)
        if info is None or info.placement is None or (measured is None and action.does in SCORED and not action.nbytes):
            return
        self._asking = finding.key
        asked = Asked(info, action, measured, self._single_rate())
        number = self._number

        def ended(gain: Gain | None) -> None:
            if number == self._number:
                self._asking, self._gains[finding.key] = None, (now, gain)
                self._show()

        self._ui.deliver(self._pool.submit(lambda: self._the_proposals().gain(asked)), ended, lambda _error: ended(None))

    def _single_rate(self) -> float | None:
        """Tokens a second of one answer alone, which is what the planner predicts."""
        window = self._doctor.window
        alone = all(one.n_answers == 1 for one in window.decoding)
        return window.works_mean(lambda one: one.decode_tok_s) if alone else None

    def _ask_ceilings(self) -> None:
        number, info = self._number, self._facts.now.info
        if info is None:
            return

        def ended(found: tuple[Mapping[str, float], int]) -> None:
            if number == self._number:
                self._facts.measured(*found)

        def failed(_error: UserFacingError) -> None:
            """Without ceilings nothing is said about them."""

        self._ui.deliver(self._pool.submit(lambda: self._the_proposals().ceilings()), ended, failed)

    def _the_proposals(self) -> Proposes:
        if self._proposals is None:
            self._proposals = self._make_proposals()
        return self._proposals

    def _score(self) -> None:
        """Once what was proposed was applied and has run for a while, it is held against what was predicted."""
        tried, works = self._tried, self._doctor.window.decoding
        if tried is None or not tried.applied or len(works) < SETTLED_READINGS:
            return
        rate = self._doctor.window.works_mean(lambda one: one.decode_tok_s)
        if rate is None or any(one.n_answers != 1 for one in works) or works[-1].kv_used_tokens > tried.kv_tokens + ALIKE_TOKENS:
            return
        self._tried = None
        self.scores.add(tried.gain.percent, tried.before_tok_s, rate)
        self.changed.emit()
