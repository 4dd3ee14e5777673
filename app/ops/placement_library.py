"""PlacementLibrary: placements that are kept: presets of a model on a machine, the one it was loaded with last, measured runs.

It speaks in placements; the store keeps texts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

from app.bridge.ui_thread import UiThread
from app.errors import UserFacingError
from app.store import placements
from app.store.chat_store import ChatStore
from app.store.placements import PresetRow, RunRow, Subject
from engine.api.errors import EngineError
from engine.api.placement_text import ReadPlacement, placement_text, read_placement
from engine.api.pure import Machine, ModelOutline, Placement, UnitId, machine_fingerprint, planner_of
from engine.api.values import LoadOptions, Usage

LEAST_TOKENS = 16
"""An answer shorter than this says nothing about the speed of decoding."""
LEAST_PROMPT = 64


@dataclass(frozen=True, slots=True)
class Preset:
    """A placement with a name, for one model on one machine."""

    name: str
    placement: Placement


class PlacementLibrary(QObject):
    """presets_changed() and runs_changed() after a change was saved; failed(sentence)."""

    presets_changed = Signal()
    runs_changed = Signal()
    failed = Signal(str)

    def __init__(
        self, store: ChatStore, ui: UiThread, worker: ThreadPoolExecutor | None = None, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._store = store
        self._ui = ui
        self._worker = worker
        self._outline: ModelOutline | None = None
        self._machine: Machine | None = None
        self._options = LoadOptions()
        self._rows: tuple[PresetRow, ...] = ()
        self._presets: tuple[Preset, ...] = ()
        self.default: Placement | None = None
        """What loading without a placement gives, as soon as it is known."""

    def open(self, outline: ModelOutline, machine: Machine, options: LoadOptions, default: Placement | None = None) -> None:
        """Whose placements are kept from now on. default: None where it is to be found out, which takes a worker a moment."""
        self._outline, self._machine, self._options, self.default = outline, machine, options, default
        self._read()
        if default is None and self._worker is not None:
            find = self._worker.submit(lambda: planner_of(outline, options, machine).default())
            self._ui.deliver(find, lambda found: self._on_default(outline, found), self._on_trouble)

    def _on_default(self, outline: ModelOutline, found: Placement) -> None:
        if outline is self._outline:
            self.default = found
            self.presets_changed.emit()

    def is_of(self, outline: ModelOutline | None) -> bool:
        """Whether it was opened for this model."""
        return outline is not None and outline is self._outline

    @property
    def presets(self) -> tuple[Preset, ...]:
        """Those that still mean something for this model on this machine, by name."""
        return self._presets

    def name_of(self, placement: Placement) -> str:
        """The preset that is this placement, "" for none."""
        return next((one.name for one in self._presets if same_places(one.placement, placement)), "")

    def text_of(self, placement: Placement) -> str:
        """The text of its file. Only after `open`."""
        assert self._outline is not None
        return placement_text(placement, self._outline)

    def read(self, text: str) -> ReadPlacement:
        """What a text means here. Only after `open`. Raises: EngineError, see `read_placement`."""
        assert self._outline is not None and self._machine is not None
        return read_placement(text, self._outline, self._options, self._machine)

    def save(self, name: str, placement: Placement) -> None:
        """Keeps a placement under a name; one of that name is replaced."""
        subject, text = self._subject(), self.text_of(placement)
        self._change(lambda db: placements.save_preset(db, subject, name, text))

    def delete(self, name: str) -> None:
        """Forgets a preset."""
        row = next((row for row in self._rows if row.name == name), None)
        if row is not None:
            self._change(lambda db: placements.delete_preset(db, row.id))

    def set_used(self, path: str, placement: Placement | None) -> None:
        """Notes what a model file is loaded with, None for what loading without a placement gives."""
        machine = self._subject().machine
        text = "" if placement is None else self.text_of(placement)
        self._store.change(lambda db: placements.set_used(db, path, machine, text))

    def add_run(self, placement: Placement, usage: Usage) -> bool:
        """Notes how fast an answer was. False: it was too short to tell."""
        decode = usage.decode_tok_s if usage.n_generated >= LEAST_TOKENS else None
        prefill = usage.prefill_tok_s if usage.n_prompt - usage.n_reused >= LEAST_PROMPT else None
        if decode is None and prefill is None:
            return False
        run = RunRow(decode, prefill, usage.n_generated, usage.n_prompt - usage.n_reused, time.time())
        subject, text = self._subject(), self.text_of(placement)
        added = self._store.change(lambda db: placements.add_run(db, subject, text, run))
        self._ui.deliver(added, lambda _none: self.runs_changed.emit(), self._on_trouble)
        return True

    def runs(self, placement: Placement) -> tuple[RunRow, ...]:
        """What was measured of a placement, newest first."""
        subject, text = self._subject(), self.text_of(placement)
        return self._store.placement(lambda db: placements.runs(db, subject, text))

    def _subject(self) -> Subject:
        assert self._outline is not None and self._machine is not None
        return Subject(self._outline.fingerprint, machine_fingerprint(self._machine))

    def _change(self, job: Callable[..., object]) -> None:
        def saved(_: object) -> None:
            self._read()
            self.presets_changed.emit()

        self._ui.deliver(self._store.change(job), saved, self._on_trouble)

    def _on_trouble(self, error: UserFacingError) -> None:
        self.failed.emit(str(error))

    def _read(self) -> None:
        subject = self._subject()
        self._rows = self._store.placement(lambda db: placements.presets(db, subject))
        found = []
        for row in self._rows:
            try:
                found.append(Preset(row.name, self.read(row.text).placement))
            except EngineError:
                continue  # of a model whose file has changed since
        self._presets = tuple(found)


def same_places(a: Placement, b: Placement) -> bool:
    """Whether two placements put everything at the same places, whoever works on it."""
    return (a.places, a.pools, _spreads(a), a.k_type, a.v_type) == (b.places, b.pools, _spreads(b), b.k_type, b.v_type)


def _spreads(placement: Placement) -> dict[UnitId, object]:
    """How units lie over nodes of memory, of those that do."""
    found = ((unit, placement.spread_of(unit)) for unit, _ in placement.spreads)
    return {unit: spread for unit, spread in found if spread is not None}
