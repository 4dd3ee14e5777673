"""PlacementApply: makes the edited placement that of the loaded model: moved while it answers, or loaded anew."""

from __future__ import annotations

from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal

from app.bridge.engine_bridge import EngineBridge
from app.bridge.engine_state import EngineState
from app.bridge.op import Op
from app.i18n import tr
from app.ops.model_ops import ModelOps
from app.ops.placement_desk import PlacementDesk
from app.ops.placement_library import PlacementLibrary, same_places
from engine.api.commands import ApplyPlacement
from engine.api.events import Failed, Finished, MigrationProgress, PlacementApplied
from engine.api.pure import Placement
from engine.api.values import ModelInfo, RequestId


@dataclass(frozen=True, slots=True)
class Applying:
    """How far it has come. phase: of MigrationProgress, or `load`."""

    phase: str = "room"
    done_bytes: int = 0
    total_bytes: int = 0

    @property
    def share(self) -> float | None:
        """Of the bytes, None where it is not known."""
        return self.done_bytes / self.total_bytes if self.total_bytes else None


@dataclass(frozen=True, slots=True)
class Applied:
    """It is done. pause_s: how long answers stood still; moved_bytes 0: the model was loaded anew or lay there already."""

    moved_bytes: int = 0
    pause_s: float = 0.0
    reloaded: bool = False


class PlacementApply(QObject):
    """progressed(Applying), done(Applied), failed(sentence). `asked`: what was applied to the loaded model, to compare with what
    came; None: nothing was, or it was given up, or the model was loaded otherwise since."""

    progressed = Signal(object)
    done = Signal(object)
    failed = Signal(str)

    def __init__(
        self,
        desk: PlacementDesk,
        bridge: EngineBridge,
        models: ModelOps,
        library: PlacementLibrary,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._desk, self._bridge, self._models, self._library = desk, bridge, models, library
        self._request: RequestId | None = None
        self._loading = False
        self.asked: Placement | None = None
        self.failure = ""
        self._stopped = False
        bridge.state_changed.connect(self._on_engine_changed)
        models.ready.connect(self._on_ready)
        models.failed.connect(self._on_load_failed)

    @property
    def running(self) -> bool:
        """Whether a placement is being applied."""
        return self._request is not None or self._loading

    def can_move(self) -> bool:
        """Whether the model that is edited is the loaded one, so that it can be moved as it runs."""
        model, placement = self._bridge.state.model, self._desk.placement
        if model is None or placement is None or model.path != self._desk.path or model.placement is None:
            return False
        same_cache = (model.placement.k_type, model.placement.v_type) == (placement.k_type, placement.v_type)
        return same_cache and model.n_ctx == self._desk.n_ctx and self._bridge.state.loading is None

    def apply(self, *, reload: bool = False) -> None:
        """Begins. reload: load the model anew even where it could be moved."""
        placement = self._desk.placement
        if placement is None or self.running or self._desk.state != "ready":
            return
        self.asked, self.failure = placement, ""
        self._desk.set_applying(True)
        if self.can_move() and not reload:
            self._move(placement)
        else:
            self._load(placement)

    def cancel(self) -> None:
        """Leaves the model as it was."""
        if self._request is not None:
            self._bridge.cancel(self._request)
        elif self._loading:
            self._models.cancel_loading()

    def _move(self, placement: Placement) -> None:
        running = self._bridge.state.model
        if running is not None and running.placement is not None:
            placement = replace(placement, workers=running.placement.workers)
        self.asked = placement
        op = Op(self._bridge, ApplyPlacement(self._bridge.new_id(), placement))
        op.on(MigrationProgress, self._on_progress).on(PlacementApplied, self._on_applied)
        self._request = op.success(self._on_finished).failure(self._on_failed).run()
        self.progressed.emit(Applying())

    def _load(self, placement: Placement) -> None:
        self._loading = True
        self._models.load(self._desk.path, self._desk.n_ctx or None, self._library.text_of(placement))
        self.progressed.emit(Applying("load"))

    def _on_progress(self, event: MigrationProgress) -> None:
        self.progressed.emit(Applying(event.phase, event.done_bytes, event.total_bytes))

    def _on_applied(self, event: PlacementApplied) -> None:
        self._end(event.info.placement)
        self.done.emit(Applied(event.moved_bytes, event.pause_s))

    def _on_finished(self, event: Finished) -> None:
        if event.reason == "cancelled":
            self._on_cancelled()

    def _on_failed(self, event: Failed) -> None:
        if event.kind == "Cancelled":
            self._on_cancelled()
            return
        self._end(self._desk.applied)
        self._fail(event.message)

    def _on_cancelled(self) -> None:
        self._end(self._desk.applied)
        self._fail(tr("Placement", "Applying was stopped; the model is as it was."), stopped=True)

    def _on_engine_changed(self, state: EngineState) -> None:
        if state.model is None and not self.running:
            self.asked = None
            self.failure = "" if self._stopped else self.failure  # there is no model any more that is as it was
        if self._loading and state.kind == "loading":
            self.progressed.emit(Applying("load", state.done, state.total))
        elif self._loading and state.loading is None and state.model is None and state.kind != "error":
            self._loading = False
            self._end(None)
            self._fail(tr("Placement", "Loading was stopped."))

    def _on_ready(self, info: ModelInfo) -> None:
        if self._loading:
            self._loading = False
            self._end(info.placement)
            self.done.emit(Applied(reloaded=True))
        else:
            self.asked = None

    def _on_load_failed(self, sentence: str) -> None:
        if self._loading:
            self._loading = False
            self._end(None)
            self._fail(sentence)

    def _end(self, applied: Placement | None) -> None:
        self._request = None
        self._desk.set_applying(False)
        self._desk.set_applied(applied)
        if applied is not None:
            default = self._library.default
            automatic = default is not None and same_places(applied, default)
            self._library.set_used(self._desk.path, None if automatic else applied)

    def _fail(self, sentence: str, *, stopped: bool = False) -> None:
        self.failure, self.asked, self._stopped = sentence, None, stopped
        self.failed.emit(sentence)
