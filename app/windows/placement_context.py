"""PlacementContext: what a longer context costs and what it pushes out, worked out in the background as the slider moves."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal

from app.errors import UserFacingError
from app.i18n import filled, tr
from app.ops.placement_planning import DeskState
from app.placement.context_pane import ContextView, context_sizes
from app.placement.facts import Fact
from app.placement.placement_page import PlacementPage
from app.widgets.format import bytes_text, count_text, short_count
from app.windows.placement_parts import PlacementParts
from engine.api.errors import EngineError
from engine.api.pure import ContextPlan, Placement, Planner, UnitId, planner_of

SETTLE_MS = 120


class PlacementContext(QObject):
    """notice(sentence); reopen_requested(n_ctx): plan the model with another context."""

    notice = Signal(str)
    reopen_requested = Signal(int)

    def __init__(self, parts: PlacementParts, page: PlacementPage, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._parts, self._page, self._desk = parts, page, parts.desk
        self._shown = False
        self._wanted = self._proposed = 0
        self._busy = False
        self._plan: ContextPlan | None = None
        self._failure = ""
        self._taken: Placement | None = None
        self._planner: Planner | None = None
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SETTLE_MS)
        self._timer.timeout.connect(self._work)
        page.context.chosen.connect(self._on_chosen)
        page.context.take_requested.connect(self._on_take_requested)
        self._desk.outline_changed.connect(self._on_outline_changed)
        self._desk.state_changed.connect(self._on_state)
        self._desk.predicted.connect(self._on_predicted)

    def set_shown(self, shown: bool) -> None:
        """Work only while it is seen."""
        self._shown = shown
        if shown:
            self._wanted = self._wanted or self._desk.n_ctx
            self.refresh()
            self._timer.start()

    def propose(self, n_ctx: int) -> None:
        """Fills in a context, as soon as the model is open."""
        self._proposed = n_ctx
        if self._desk.outline is not None and self._desk.state != "estimating":
            self._take_proposed()

    def _take_proposed(self) -> None:
        if self._proposed:
            self._wanted, self._proposed = self._proposed, 0
            self.refresh()
            if self._shown:
                self._timer.start()

    def refresh(self) -> None:
        """Shows what is known."""
        outline, plan = self._desk.outline, self._plan
        if not self._shown or outline is None:
            return
        sizes = context_sizes(max(outline.info.context_length, self._desk.n_ctx), self._desk.n_ctx)
        wanted = min(sizes, key=lambda size: abs(size - self._wanted))
        if plan is None or plan.n_ctx != wanted:
            sentence = self._failure or tr("Placement", "Working it out…")
            self._page.context.show_view(ContextView(sizes, wanted, self._desk.n_ctx, sentence, fits=not self._failure))
            return
        sign = "+" if plan.extra_bytes >= 0 else "−"
        facts = (
            Fact(tr("Placement", "Now"), filled(tr("Placement", "%1 tokens"), count_text(self._desk.n_ctx))),
            Fact(tr("Placement", "Memory"), f"{sign}{bytes_text(abs(plan.extra_bytes))}"),
        )
        offered = filled(tr("Placement", "Plan with %1"), short_count(wanted)) if wanted != self._desk.n_ctx else ""
        present = wanted == self._desk.n_ctx and plan.fits and not plan.extra_bytes
        sentence = tr("Placement", "This is the present context.") if present else plan.sentence
        view = ContextView(sizes, wanted, self._desk.n_ctx, sentence, plan.moves, facts, plan.fits, offered)
        self._page.context.show_view(view)

    def _on_chosen(self, n_ctx: int) -> None:
        self._wanted = n_ctx
        self.refresh()
        self._timer.start()

    def _on_outline_changed(self) -> None:
        outline, machine = self._desk.outline, self._desk.machine
        self._plan, self._failure, self._wanted = None, "", self._desk.n_ctx
        self._planner = None if outline is None or machine is None else planner_of(outline, self._desk.options, machine)
        self._take_proposed()
        self.refresh()

    def _on_state(self, state: DeskState) -> None:
        """What was taken is edited as soon as the model is open with the longer context."""
        if self._taken is not None and state in ("ready", "does not fit", "failed"):
            taken, self._taken = self._taken, None
            self._desk.set_placement(taken, tr("Placement", "Make room for the context"))

    def _on_predicted(self) -> None:
        self._plan = None
        if self._shown:
            self._timer.start()

    def _work(self) -> None:
        """One question at a time: the newest."""
        planner, placement, n_ctx = self._planner, self._desk.placement, self._wanted
        if self._busy or not self._shown or planner is None or placement is None or not n_ctx or not self._parts.ui.is_open:
            return
        self._busy = True
        held = frozenset(one for one in self._desk.pins if isinstance(one, UnitId))

        def plan() -> ContextPlan:
            try:
                return planner.context(placement, n_ctx, held)
            except EngineError as error:
                raise UserFacingError(str(error)) from error

        self._parts.ui.deliver(
            self._parts.worker.submit(plan),
            lambda found: self._on_planned(placement, n_ctx, found, ""),
            lambda error: self._on_planned(placement, n_ctx, None, str(error)),
        )

    def _on_planned(self, placement: Placement, n_ctx: int, plan: ContextPlan | None, failure: str) -> None:
        self._busy = False
        if placement != self._desk.placement or n_ctx != self._wanted:
            self._work()
            return
        self._plan, self._failure = plan, failure
        self.refresh()

    def _on_take_requested(self) -> None:
        if self._plan is not None and self._plan.fits:
            self._taken = self._plan.placement
            self.reopen_requested.emit(self._plan.n_ctx)
