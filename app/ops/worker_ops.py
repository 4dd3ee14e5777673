"""WorkerOps: which cores work for the loaded model, other ones, and the sweep that finds the best number."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

from app.bridge.engine_bridge import EngineBridge
from app.bridge.op import Op
from app.i18n import filled, tr
from engine.api.commands import PinWorkers, TuneWorkers
from engine.api.events import Failed, Finished, TuneProgress, WorkersPinned, WorkersTuned
from engine.api.machine import this_topology
from engine.api.values import RequestId, Topology


class WorkerOps(QObject):
    """changed(): who works, whether a model is loaded, whether something is under way. pinned(WorkersPinned);
    progress(TuneProgress); tuned(WorkersTuned); failed(sentence)."""

    changed = Signal()
    pinned = Signal(object)
    progress = Signal(object)
    tuned = Signal(object)
    failed = Signal(str)

    def __init__(
        self, bridge: EngineBridge, topology: Callable[[], Topology] = this_topology, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._ask_topology = topology
        self._pinning: RequestId | None = None
        self._tuning: RequestId | None = None
        self._working: tuple[int, ...] = ()
        bridge.state_changed.connect(self._on_state)
        self._on_state()

    @property
    def topology(self) -> Topology:
        """This machine."""
        return self._ask_topology()

    @property
    def working(self) -> tuple[int, ...]:
        """The processors that work for the loaded model, -1 for workers that run anywhere; () without a model."""
        return self._working

    @property
    def pinning(self) -> bool:
        """Whether other workers were asked for just now."""
        return self._pinning is not None

    @property
    def tuning(self) -> bool:
        """Whether a sweep is under way."""
        return self._tuning is not None

    def pin(self, cpus: str) -> None:
        """Others work from the next step on. cpus: see `PinWorkers`."""
        if self._pinning is not None or not self._working:
            return
        op = Op(self._bridge, PinWorkers(self._bridge.new_id(), cpus)).on(WorkersPinned, self.pinned.emit)
        self._pinning = op.success(self._on_pinned).failure(self._on_pin_failed).run()
        self.changed.emit()

    def tune(self) -> None:
        """Begins a sweep."""
        if self._tuning is not None or not self._working:
            return
        op = Op(self._bridge, TuneWorkers(self._bridge.new_id()))
        op.on(TuneProgress, self.progress.emit).on(WorkersTuned, self.tuned.emit)
        self._tuning = op.success(self._on_tuned).failure(self._on_tune_failed).run()
        self.changed.emit()

    def stop_tuning(self) -> None:
        """Ends the sweep; nothing of it is kept."""
        if self._tuning is not None:
            self._bridge.cancel(self._tuning)

    def forget(self) -> None:
        """Drops what an earlier sweep found for the loaded model."""
        op = Op(self._bridge, TuneWorkers(self._bridge.new_id(), forget=True)).on(WorkersTuned, self._on_forgotten)
        op.failure(lambda event: self.failed.emit(event.message)).run()

    def _on_forgotten(self, event: WorkersTuned) -> None:
        self.failed.emit(
            filled(tr("Workers", "It cannot be forgotten: %1"), event.why_not)
            if event.why_not
            else tr("Workers", "Forgotten: the machine decides again at the next load.")
        )

    def _on_pinned(self, _event: Finished) -> None:
        self._pinning = None
        self.changed.emit()

    def _on_pin_failed(self, event: Failed) -> None:
        self._pinning = None
        self.failed.emit(event.message)
        self.changed.emit()

    def _on_tuned(self, _event: Finished) -> None:
        self._tuning = None
        self.changed.emit()

    def _on_tune_failed(self, event: Failed) -> None:
        self._tuning = None
        self.failed.emit(event.message)
        self.changed.emit()

    def _on_state(self) -> None:
        model = self._bridge.state.model
        working = () if model is None or model.placement is None else model.placement.workers.cores
        if working != self._working:
            self._working = working
            self.changed.emit()
