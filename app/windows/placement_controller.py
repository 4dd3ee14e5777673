"""PlacementController: joins the placement page to its desk: header, summary, filters, pending changes and states.

What the panes at the right show is the work of controllers of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtWidgets import QWidget

from app.actions.registry import Condition
from app.bridge.engine_state import EngineState
from app.i18n import filled, tr
from app.ops.model_files import first_file
from app.ops.placement_planning import cards_text, device_name
from app.ops.placement_room import cards_to_move, missing_room
from app.placement.board import PlacementBoard
from app.placement.filter_bar import KINDS, Filter
from app.placement.placement_page import PlacementPage
from app.widgets.state_dot import STATE_DOTS
from app.widgets.toast import Toast
from app.windows.page_door import PageController
from app.windows.placement_check import PlacementCheck
from app.windows.placement_commands import PlacementCommands
from app.windows.placement_compare import PlacementCompare
from app.windows.placement_context import PlacementContext
from app.windows.placement_figures import sentence_case, summary
from app.windows.placement_inspector import PlacementInspector
from app.windows.placement_menus import PlacementMenus
from app.windows.placement_parts import PlacementParts
from app.windows.placement_pools import PlacementPools
from app.windows.placement_preview import PlacementPreview
from app.windows.placement_states import PlacementStates
from app.windows.placement_use import PlacementUse
from engine.api.events import Event, Finished
from engine.api.pure import Numa
from engine.api.values import LoadOptions, ModelInfo


class PlacementController(PageController):
    """pick_requested(): choose a model to place."""

    pick_requested = Signal()

    def __init__(self, parts: PlacementParts, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._parts = parts
        self.desk = parts.desk
        self.board = PlacementBoard(parts.desk)
        self.page = PlacementPage(self.board)
        self._picked = False
        self._room = ""
        self._seen: object = None
        self.states = PlacementStates(parts, self.page, self)
        self.menus = PlacementMenus(parts, self.page, self)
        self.inspector = PlacementInspector(parts, self.board, self.page, self)
        self.use = PlacementUse(parts, self.inspector, self.page, self)
        self.compare = PlacementCompare(parts, self.page, self)
        self.check = PlacementCheck(parts, self.page, self)
        self.commands = PlacementCommands(parts, self.page, self)
        self.context = PlacementContext(parts, self.page, self)
        self.pools = PlacementPools(parts, self.page, self)
        self.preview = PlacementPreview(parts.desk, self)
        self._connect()
        self.board.tab_after(self.page.filters.field)
        self._refresh()

    def _connect(self) -> None:
        desk, page, board, header = self.desk, self.page, self.board, self.page.header
        desk.state_changed.connect(self._refresh)
        desk.outline_changed.connect(self._on_outline_changed)
        desk.predicted.connect(self._refresh)  # by which what is pending has been counted
        desk.history_changed.connect(self._show_header)
        desk.notice.connect(self.notice)
        board.drag.tried.connect(self._show_summary)
        self._parts.library.runs_changed.connect(self._show_summary)
        board.apply_requested.connect(self.apply)
        board.filter_requested.connect(page.filters.open_field)
        board.grouped_changed.connect(page.filters.set_grouped)
        page.filters.changed.connect(self._on_filter_changed)
        header.model_clicked.connect(self.pick_requested)
        page.state.chosen.connect(self.pick_requested)
        header.undo_requested.connect(desk.undo)
        header.redo_requested.connect(desk.redo)
        header.fit_requested.connect(desk.auto_fit)
        header.apply_requested.connect(self.apply)
        header.pane_requested.connect(self.show_pane)
        page.key_pressed.connect(self._on_key_pressed)
        page.pending.discard_requested.connect(desk.discard)
        page.pending.cancel_requested.connect(self._parts.apply.cancel)
        self.states.apply_requested.connect(self.apply)
        self.states.machine_requested.connect(lambda: self.menus.choose_machine(""))
        self.states.changed.connect(self._refresh)
        self._parts.bridge.state_changed.connect(self._on_engine_changed)
        self._parts.bridge.happened.connect(self._on_event)
        self._parts.models.ready.connect(self._on_model_ready)
        for part in (
            self.states,
            self.menus,
            self.inspector,
            self.use,
            self.compare,
            self.check,
            self.commands,
            self.context,
            self.pools,
        ):
            part.notice.connect(self.notice)
        self.menus.reopen_requested.connect(self._reopen)
        self.context.reopen_requested.connect(lambda n_ctx: self._reopen(n_ctx=n_ctx))

    # --- which model -------------------------------------------------------------------------------------------------

    @property
    def view(self) -> QWidget:
        """The page."""
        return self.page

    @property
    def toast(self) -> Toast:
        """Where a sentence is shown on the page."""
        return self.page.toast

    def shown(self, on: bool) -> None:
        """The page came into sight or left it."""
        self.inspector.watch(on)
        if on and not self.desk.path:
            model = self._parts.bridge.state.model
            path = self._parts.models.loading_path if model is None else model.path
            if path:
                self._open(path, model)
        if on:
            self._refresh()

    def open(self, path: str, n_ctx: int = 0) -> None:
        """Plans a model from its header, loaded or not. n_ctx: of one that is not loaded, 0: as the settings say."""
        self._picked = True
        model = self._parts.bridge.state.model
        self._open(path, model if model is not None and model.path == path else None, n_ctx)

    def mark_lost(self, gpu: int) -> None:
        """A GPU that is gone, though nobody told this page when it went."""
        self._parts.lost.add(gpu)

    def _open(self, path: str, loaded: ModelInfo | None, n_ctx: int = 0) -> None:
        path, options = str(first_file(Path(path))), self._parts.models.load_options()
        if n_ctx:
            options = replace(options, n_ctx=n_ctx)
        if loaded is not None:
            options = _as_loaded(replace(options, n_ctx=loaded.n_ctx), loaded)
        here = self._parts.machine.is_this
        self.desk.open(path, options, loaded.placement if loaded is not None and here else None)
        self._refresh()

    def _reopen(self, n_ctx: int = 0) -> None:
        """The same model for another machine or context."""
        if not self.desk.path:
            return
        model = self._parts.bridge.state.model
        loaded = model if model is not None and model.path == self.desk.path and self._parts.machine.is_this else None
        options = replace(self._parts.models.load_options(), n_ctx=n_ctx or self.desk.n_ctx or self.desk.options.n_ctx)
        if loaded is not None and options.n_ctx == loaded.n_ctx:
            options = _as_loaded(options, loaded)
        self.desk.open(self.desk.path, options, loaded.placement if loaded is not None else None)

    def _on_model_ready(self, info: ModelInfo) -> None:
        if info.path == self.desk.path:
            if self._parts.machine.is_this and not self._parts.apply.running:
                if info.n_ctx != self.desk.n_ctx:
                    self._open(info.path, info)
                else:
                    self.desk.set_applied(info.placement)
        elif (self.desk.path and not self._picked) or (not self.desk.path and self.page.isVisible()):
            self._open(info.path, info)
        self._refresh()

    def _on_engine_changed(self, state: EngineState) -> None:
        """Only what the page shows of it: the speed of an answer changes thirty times a second."""
        seen = (state.kind, state.model, bool(state.answers), state.loading)
        if seen == self._seen:
            return
        self._seen = seen
        if state.model is None and self.desk.applied is not None and not self._parts.apply.running:
            self.desk.set_applied(None)
        self._refresh()

    def _on_event(self, event: Event) -> None:
        """Answers tell how fast a placement really is."""
        model = self._parts.bridge.state.model
        if not isinstance(event, Finished) or event.reason not in ("stop", "length") or model is None or model.placement is None:
            return
        here = model.path == self.desk.path and self.desk.outline is not None and self._parts.machine.is_this
        if here:
            self._parts.library.add_run(model.placement, event.usage)

    def _on_outline_changed(self) -> None:
        outline, machine = self.desk.outline, self.desk.machine
        if outline is not None and machine is not None:
            default = self.desk.placement if self.desk.applied is None else None
            self._parts.library.open(outline, machine, self.desk.options, default)
            self.page.filters.set_model(outline.n_layers, has_experts=outline.n_experts > 0)
        if self._room:
            QTimer.singleShot(0, self, lambda: self.make_room(self._room))
        self._refresh()

    def handlers(self) -> dict[str, Callable[[], object]]:
        """What the actions of the page do, by their ids."""
        desk, menus = self.desk, self.menus
        return {
            "apply_placement": self.apply,
            "undo_placement": desk.undo,
            "redo_placement": desk.redo,
            "fit_placement": desk.auto_fit,
            "discard_placement": desk.discard,
            "save_preset": menus.ask_name,
            "export_placement": menus.export_file,
            "import_placement": menus.import_file,
            "choose_machine": menus.ask_machine,
            "plan_context": lambda: self.toggle_pane("context"),
            "compare_placements": lambda: self.toggle_pane("compare"),
            "check_placement": lambda: self.toggle_pane("check"),
            "equivalent_command": lambda: self.toggle_pane("command"),
        }

    def conditions(self) -> set[Condition]:
        """Which of them can be done while the page is shown."""
        if self.desk.outline is None:
            return set()
        return {"placement_shown", "placement_pending"} if self._can_apply() else {"placement_shown"}

    # --- actions -----------------------------------------------------------------------------------------------------

    def apply(self) -> None:
        """Applies what is edited; where that ends an answer of the loaded model, it asks first."""
        if not self._can_apply():
            return
        engine = self._parts.bridge.state
        if not self._parts.apply.can_move() and engine.answers and not self.states.answered():
            self.states.ask()
            return
        self._parts.apply.apply()
        self._refresh()

    def show_pane(self, pane: str) -> None:
        """What the panel at the right shows."""
        self.page.set_pane(pane)
        for name, part in (
            ("compare", self.compare),
            ("check", self.check),
            ("command", self.commands),
            ("context", self.context),
        ):
            part.set_shown(name == pane)

    def toggle_pane(self, pane: str) -> None:
        """A pane, or the selection again."""
        self.show_pane("selection" if self.page.pane == pane else pane)

    def _can_apply(self) -> bool:
        if self.desk.state != "ready" or not self._parts.machine.is_this or self._parts.apply.running:
            return False
        return self.desk.pending > 0 or self.desk.applied is None or not self._parts.apply.can_move()

    # --- showing -----------------------------------------------------------------------------------------------------

    def _refresh(self, _what: object = None) -> None:
        outline, page = self.desk.outline, self.page
        loaded = self._is_loaded()
        state = self._parts.bridge.state
        if outline is not None:
            info = outline.info
            dot = STATE_DOTS[state.kind] if loaded else "text3"
            page.header.set_model(info.name, info.quant, info.file_bytes, dot)
        else:
            page.header.set_model("", "", 0, "text3")
        page.show_board(shown=outline is not None and self.desk.state not in ("no model", "failed"))
        self.states.show()
        self._show_header()
        self._show_summary()
        self.shown_changed.emit()

    def _is_loaded(self) -> bool:
        model = self._parts.bridge.state.model
        return model is not None and model.path == self.desk.path

    def _show_header(self) -> None:
        header, desk = self.page.header, self.desk
        steps = ("", "") if desk.state == "applying" else (desk.undo_text, desk.redo_text)
        header.set_history(*steps)
        header.set_fit_enabled(desk.outline is not None and desk.state in ("ready", "does not fit"))
        self.menus.show()
        if self._parts.apply.can_move():
            text = tr("Placement", "Apply")
        elif self._is_loaded() or self._parts.bridge.state.model is None:
            text = tr("Placement", "Apply and reload") if self._is_loaded() else tr("Placement", "Load")
        else:
            text = tr("Placement", "Load instead")
        header.set_apply(text, enabled=self._can_apply(), reason=self.states.why_not())

    def _show_summary(self) -> None:
        desk, page = self.desk, self.page
        trial = self.board.drag.trial
        prediction = desk.prediction if trial is None or trial.then is None else trial.then
        if prediction is None or desk.placement is None:
            page.summary.set_figures((), dim=True)
            return
        changed = trial is not None or desk.pending > 0
        library = self._parts.library
        known = trial is None and self._parts.machine.is_this and library.is_of(desk.outline)
        runs = library.runs(desk.placement) if known else ()
        figures = summary(prediction, desk.prediction_applied if changed else None, runs, time.time())
        page.summary.set_figures(figures, dim=desk.state == "estimating", alarmed=not prediction.fits)
        devices = len(desk.devices())
        n_devices = tr("Placement", "1 device") if devices == 1 else tr("Placement", "%n devices", devices)
        page.filters.set_count(f"{cards_text(len(desk.cards()))}, {n_devices}")

    # --- keys and filters --------------------------------------------------------------------------------------------

    def _on_filter_changed(self, wanted: Filter) -> None:
        kinds = None if wanted.kinds >= set(KINDS) else frozenset(wanted.kinds)
        self.board.set_filter(wanted.text, kinds)  # type: ignore[arg-type]
        self.board.set_grouped(wanted.grouped)

    def _on_key_pressed(self, key: int) -> None:
        """Letters and digits that no widget of the page took act as on the board."""
        devices = self.desk.devices()
        number = key - ord("1")
        if 0 <= number < min(9, len(devices)):
            self.board.move_selected(devices[number].device)
        elif key == ord("A"):
            self.desk.auto_fit()
        elif key == ord("N"):
            self.board.split_selected()
        elif key == ord("/"):
            self.page.filters.open_field()
        elif key == ord("G"):
            self.page.filters.toggle_group()

    def make_room(self, sentence: str) -> None:
        """A device ran full, as the engine's sentence says: proposes moves that make room, to be applied or undone."""
        if self.desk.state == "estimating":
            self._room = sentence
            return
        self._room = ""
        wanted, home = (
            missing_room(sentence),
            next((row.device for row in self.desk.devices() if isinstance(row.device, Numa)), None),
        )
        if wanted is None or home is None:
            self.notice.emit(sentence_case(sentence))
            return
        cards = cards_to_move(self.desk.cards(), *wanted)
        if cards and self.desk.move(cards, home):
            text = tr("Placement", "%1 leave %2 to make room; look, then apply.")
            self.notice.emit(filled(text, cards_text(len(cards)), device_name(wanted[0])))


def _as_loaded(options: LoadOptions, loaded: ModelInfo) -> LoadOptions:
    """The options with the chunk of prompts that the loaded model has: it stays what it is wherever cards are moved."""
    return replace(options, prefill_chunk=loaded.prefill_chunk, grow_chunk=False) if loaded.prefill_chunk else options
