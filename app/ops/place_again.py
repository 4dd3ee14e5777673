"""PlaceAgain: has pages that lie on another memory node than the placement says sent where they belong, while answers go on."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.bridge.engine_bridge import EngineBridge
from app.bridge.op import Op
from app.i18n import filled, tr
from app.widgets.format import bytes_text
from engine.api.commands import ApplyPlacement
from engine.api.events import Failed, Finished, PlacementApplied
from engine.api.values import RequestId


class PlaceAgain(QObject):
    """notice(sentence): how it ended."""

    notice = Signal(str)

    def __init__(self, bridge: EngineBridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._request: RequestId | None = None

    @property
    def running(self) -> bool:
        """Whether it is under way."""
        return self._request is not None

    def run(self) -> None:
        """Applies the placement of the loaded model once more: nothing of it differs, so the engine looks after its pages."""
        model = self._bridge.state.model
        if self.running or model is None or model.placement is None:
            return
        op = Op(self._bridge, ApplyPlacement(self._bridge.new_id(), model.placement)).on(PlacementApplied, self._on_applied)
        self._request = op.success(self._on_finished).failure(self._on_failed).run()

    def _on_applied(self, event: PlacementApplied) -> None:
        if event.moved_bytes:
            said = filled(tr("Monitors", "Sent %1 to the memory nodes where they belong."), bytes_text(event.moved_bytes))
        else:
            said = tr("Monitors", "All that could be looked at lies where it should, or the system does not move it.")
        self.notice.emit(said)

    def _on_finished(self, _event: Finished) -> None:
        self._request = None

    def _on_failed(self, event: Failed) -> None:
        self._request = None
        self.notice.emit(filled(tr("Monitors", "It stays where it lies: %1"), event.message))
