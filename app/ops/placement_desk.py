"""PlacementDesk: what the placement page edits: one current Placement of one model, its history, and what each will cost.

It asks the pure arithmetic of `engine.api.pure` directly, never through the engine; only `apply` speaks to the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from PySide6.QtCore import QObject, Signal

from app.bridge.ui_thread import UiThread
from app.errors import UserFacingError
from app.i18n import filled, tr
from app.ops.placement_cards import Card, CardId
from app.ops.placement_fix import Fix, PlacementFix
from app.ops.placement_heat import PlacementHeat
from app.ops.placement_history import Draft, PlacementHistory
from app.ops.placement_moves import differing, fitted, movable, moved, owners
from app.ops.placement_planning import (
    DeskState,
    DeviceRow,
    MakePlanner,
    PlacementPlanner,
    Remembered,
    cards_text,
    device_name,
    device_rows,
)
from app.ops.placement_table import CardTable, Marks
from app.ops.placement_trials import PlacementTrials
from app.ops.placement_worker import Opened, PlacementWorker
from engine.api.pure import (
    Calibration,
    Device,
    Machine,
    ModelOutline,
    Placement,
    Prediction,
    planner_of,
    read_outline,
    this_machine,
)
from engine.api.values import LoadOptions


class PlacementDesk(QObject):
    """Signals: outline_changed(); changed(frozenset of devices whose cards changed); predicted(); pending_changed(number of
    cards that lie otherwise than in the loaded model); state_changed(DeskState); heat_changed(); history_changed();
    notice(sentence).

    path, options: the file of the model that is edited, and how it will be loaded.
    """

    outline_changed = Signal()
    changed = Signal(object)
    predicted = Signal()
    pending_changed = Signal(int)
    state_changed = Signal(str)
    heat_changed = Signal()
    history_changed = Signal()
    notice = Signal(str)

    def __init__(
        self,
        ui: UiThread,
        pool: ThreadPoolExecutor,
        parent: QObject | None = None,
        *,
        make_planner: MakePlanner = planner_of,
        read: Callable[[str], ModelOutline] = read_outline,
        machine: Callable[[], Machine] = this_machine,
    ) -> None:
        super().__init__(parent)
        self._worker = PlacementWorker(ui, pool, make_planner, read, machine)
        self._history = PlacementHistory(self)
        self._fix = PlacementFix(self._worker, self)
        self._state: DeskState = "no model"
        self._failure = ""
        self.path = ""
        self.options = LoadOptions()
        self._clear(None)
        self._history.shown.connect(self._on_shown)
        self._history.changed.connect(self.history_changed)
        self._fix.found.connect(self.predicted)
        self._fix.failed.connect(self.notice)

    def _clear(self, opened: Opened | None, applied: Placement | None = None) -> None:
        """Forgets everything about the model before; of the same one, as with another context, it keeps what is pinned."""
        same = opened is not None and self.outline is not None and self.outline.fingerprint == opened.outline.fingerprint
        pins = self.pins if same else frozenset[CardId]()
        self._opened, self._applied = opened, applied
        self._cards = CardTable()
        self._base: Placement | None = None if opened is None else opened.placement
        self._prediction: Prediction | None = None if opened is None else opened.prediction
        self._prediction_applied = self._prediction
        self._rows = Remembered[tuple[DeviceRow, ...]]()
        self._fix.forget()
        self._pending, self._lost = 0, frozenset[Device]()
        self._heat = PlacementHeat()
        self._trials = None if opened is None else PlacementTrials(opened, self._heat)
        self._history.start(None if opened is None else Draft(opened.placement, pins))

    # --- what there is -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> DeskState:
        """What can be done: see DeskState."""
        return self._state

    @property
    def failure(self) -> str:
        """Why the state is `failed`, a sentence."""
        return self._failure

    @property
    def n_ctx(self) -> int:
        """Tokens of context that caches are made for."""
        return 0 if self._opened is None else self._opened.planner.n_ctx

    @property
    def outline(self) -> ModelOutline | None:
        """The model, None before one was read."""
        return None if self._opened is None else self._opened.outline

    @property
    def machine(self) -> Machine | None:
        """What it is placed on."""
        return None if self._opened is None else self._opened.machine

    @property
    def planner(self) -> PlacementPlanner | None:
        """The arithmetic."""
        return None if self._opened is None else self._opened.planner

    @property
    def placement(self) -> Placement | None:
        """As edited."""
        return None if self._history.draft is None else self._history.draft.placement

    @property
    def applied(self) -> Placement | None:
        """Of the loaded model; None where this model is not loaded."""
        return self._applied

    @property
    def prediction(self) -> Prediction | None:
        """Of the edited placement."""
        return self._prediction

    @property
    def prediction_applied(self) -> Prediction | None:
        """Of the loaded model's placement; where none is loaded, of the one that editing began with."""
        return self._prediction_applied

    @property
    def pins(self) -> frozenset[CardId]:
        """Cards that nothing moves."""
        return frozenset() if self._history.draft is None else self._history.draft.pins

    @property
    def pending(self) -> int:
        """Cards that lie otherwise than in the loaded model; caches go with their attention and are not counted."""
        return self._pending

    @property
    def heat(self) -> PlacementHeat:
        """Which experts are used, and which are chosen to be moved on their own."""
        return self._heat

    @property
    def undo_text(self) -> str:
        """What `undo` takes back; empty: nothing."""
        return self._history.undo_text

    @property
    def redo_text(self) -> str:
        """What `redo` does again; empty: nothing."""
        return self._history.redo_text

    def devices(self) -> tuple[DeviceRow, ...]:
        """The columns, in the order of the keys 1 to 9."""
        opened, placement, lost = self._opened, self.placement, self._lost
        if opened is None:
            return ()
        used = () if placement is None else placement.devices
        return self._rows.of((placement, lost), lambda: device_rows(opened.machine, used, lost))

    def cards(self) -> tuple[Card, ...]:
        """All cards, device by device."""
        return tuple(card for row in self.devices() for card in self.cards_of(row.device))

    def cards_of(self, device: Device) -> tuple[Card, ...]:
        """The cards on one device."""
        return self._cards.of(device)

    def card(self, card_id: CardId) -> Card | None:
        """One card; None: there is no such thing."""
        return self._cards.get(card_id)

    # --- opening -----------------------------------------------------------------------------------------------------

    def open(self, path: str, options: LoadOptions | None = None, applied: Placement | None = None) -> None:
        """Reads the header of a model and begins to edit. applied: how it is loaded, where it is."""
        self.path, self.options = path, LoadOptions() if options is None else options
        self._set_state("estimating")
        self._worker.open(path, self.options, applied, lambda opened: self._on_opened(opened, applied), self._on_failed_to_open)

    def close(self) -> None:
        """No model is edited any more."""
        self._worker.close()
        self.path = ""
        self._clear(None)
        self._set_state("no model")
        self.outline_changed.emit()

    def _on_opened(self, opened: Opened, applied: Placement | None) -> None:
        self._clear(opened, applied)
        self.outline_changed.emit()
        self._remake(frozenset(row.device for row in self.devices()))
        self._set_state("ready")
        self._settle()
        self.pending_changed.emit(self._pending)  # some may have been edited as soon as it was ready
        self.predicted.emit()

    def _on_failed_to_open(self, error: UserFacingError) -> None:
        self._failure = str(error)
        self._clear(None)
        self._set_state("failed")
        self.outline_changed.emit()

    # --- editing -----------------------------------------------------------------------------------------------------

    def move(self, cards: Iterable[CardId], device: Device) -> bool:
        """Moves cards to a device; those that are pinned or lie there stay. False: nothing moved; a notice says why not."""
        asked, draft = tuple(cards), self._history.draft
        if reason := self.refusal(asked, device):
            self.notice.emit(reason)
        if reason or draft is None or self._opened is None:
            return False
        placement = moved(self._opened.planner, draft, asked, device, self._heat)
        if placement is None:
            return False
        text = filled(tr("Placement", "Move %1 to %2"), cards_text(len(movable(draft, asked, device))), device_name(device))
        return self._history.step(text, replace(draft, placement=placement))

    def preview(self, cards: Iterable[CardId], device: Device) -> Prediction | None:
        """What moving cards to a device would cost; None: nothing would move. Asking again costs nothing."""
        draft, trials = self._history.draft, self._trials
        return None if draft is None or trials is None else trials.preview(draft, frozenset(cards), device)

    def refusal(self, cards: Iterable[CardId], device: Device) -> str:
        """Why cards cannot be moved to a device, a sentence with what to do; empty: they can, or lie there."""
        draft = self._history.draft
        if self._trials is None or draft is None:
            return tr("Placement", "No model is open; choose one first.")
        if self._state == "applying":
            return tr("Placement", "The placement is being applied; wait for it to finish.")
        if device in self._lost:
            return filled(tr("Placement", "%1 is gone; choose another device."), device_name(device))
        return self._trials.refusal(draft, tuple(cards), device)

    def pin(self, cards: Iterable[CardId], on: bool) -> None:
        """Holds cards fast, or lets them go."""
        draft, ids = self._history.draft, frozenset(owners(cards))
        if draft is not None and ids:
            text = tr("Placement", "Pin %1") if on else tr("Placement", "Unpin %1")
            pins = draft.pins | ids if on else draft.pins - ids
            self._history.step(filled(text, cards_text(len(ids))), replace(draft, pins=pins))

    def auto_fit(self) -> None:
        """Looks for the best placement by the counts that are shown, in the background; what is pinned stays, nothing goes to a
        device that is gone. A notice says why there is none."""
        opened, trials, draft = self._opened, self._trials, self._history.draft
        if opened is None or trials is None or draft is None or self._state == "applying":
            return
        counts, solver = dict(self._heat.counts), partial(self._worker.solver, opened, self.options, self._lost)

        def found(placement: Placement) -> None:
            trials.set_counts(counts)  # so that it is shown as fast as it was found to be
            self.set_placement(placement, tr("Placement", "Auto-fit"))

        self._worker.search(lambda: fitted(solver(), draft, counts), found, lambda error: self.notice.emit(str(error)))

    def fix(self) -> None:
        """Does what `proposal` says."""
        if (found := self.proposal) is not None:
            self.set_placement(found.placement, found.text)

    @property
    def proposal(self) -> Fix | None:
        """What would make a placement fit that does not; None: nothing, or it is still looked for."""
        return self._fix.of(self.placement)

    def undo(self) -> bool:
        """One step back. False: there is none."""
        return self._state != "applying" and self._history.undo()

    def redo(self) -> bool:
        """One step forth. False: there is none."""
        return self._state != "applying" and self._history.redo()

    def discard(self) -> None:
        """Back to how the model is loaded, or to the placement that editing began with; a step that can be undone."""
        if self._base is not None:
            self.set_placement(self._base, tr("Placement", "Discard changes"))

    def set_placement(self, placement: Placement, text: str = "") -> None:
        """Edits another placement of this model, as a step."""
        if self._history.draft is not None and self._state != "applying":
            step = text or tr("Placement", "Use another placement")
            self._history.step(step, replace(self._history.draft, placement=placement))

    # --- what others find out ----------------------------------------------------------------------------------------

    def set_lost(self, devices: frozenset[Device]) -> None:
        """Which devices went away; their cards stay and can be moved."""
        if devices != self._lost:
            self._lost, changed = devices, devices ^ self._lost
            self.changed.emit(changed)
            self._settle()

    def set_applied(self, placement: Placement | None) -> None:
        """How the model is loaded now; None: it is not."""
        if self._opened is None or placement == self._applied:
            return
        self._applied = placement
        if placement is not None:
            self._base = placement
            self._prediction_applied = self._opened.planner.estimate(placement)
        self._remake(self._cards.devices())
        self._count_pending()
        self.predicted.emit()

    def set_rates(self, rates: Calibration) -> None:
        """What was measured of the machine meanwhile: figures change, and nothing else."""
        if self._trials is not None and self.placement is not None:
            self._trials.set_rates(rates)
            self._prediction_applied = self._trials.estimate(self._base or self.placement)
            self._prediction = self._trials.estimate(self.placement)
            self.predicted.emit()

    def set_applying(self, on: bool) -> None:
        """While a placement is being applied nothing can be edited."""
        if on:
            self._set_state("applying")
        elif self._state == "applying":
            self._settle(ended=True)

    def set_heat(self, counts: Mapping[int, Sequence[int]]) -> None:
        """How often each expert of some layers was chosen."""
        self._heat.set_counts(counts)
        self._remake(self._cards.devices())
        self.heat_changed.emit()

    def split(self, layers: Iterable[int], n_hot: int) -> None:
        """Chooses the hottest experts of layers to be moved on their own; 0: all of them together."""
        self._heat.split(layers, n_hot)
        self._remake(self._cards.devices())

    # --- how it is done ----------------------------------------------------------------------------------------------

    def _on_shown(self, draft: Draft) -> None:
        if self._trials is None:
            return
        touched = self._cards.differing(draft)
        self._prediction = self._trials.estimate(draft.placement)
        self._remake(touched)
        self._settle()
        self._count_pending()
        self.predicted.emit()

    def _remake(self, devices: frozenset[Device]) -> None:
        if self._opened is not None and self._history.draft is not None and devices:
            self._cards.make(self._opened, self._history.draft, Marks(self._heat, self._applied), devices)
            self.changed.emit(devices)

    def _settle(self, *, ended: bool = False) -> None:
        """The state that follows from the prediction; where it does not fit, a fix is looked for. ended: applying has."""
        if (self._state == "applying" and not ended) or self._prediction is None:
            return
        fits = self._prediction.fits and not any(self._cards.of(device) for device in self._lost)
        if not fits and self._opened is not None and self._history.draft is not None:
            solver = partial(self._worker.solver, self._opened, self.options, self._lost)
            self._fix.look(solver, self._history.draft, self._lost)
        self._set_state("ready" if fits else "does not fit")

    def _count_pending(self) -> None:
        pending = 0 if self.placement is None or self._base is None else len(differing(self._base, self.placement))
        if pending != self._pending:
            self._pending = pending
            self.pending_changed.emit(pending)

    def _set_state(self, state: DeskState) -> None:
        if state != self._state:
            self._state = state
            self.state_changed.emit(state)
