"""StallWatch: says so when the engine has shown no progress for ten seconds, and what it waits for."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal

from app.bridge.engine_bridge import EngineBridge
from app.bridge.engine_state import EngineState
from app.i18n import tr

STALL_MS = 10_000


class StallWatch(QObject):
    """Signal stalled(sentence), once for each stall."""

    stalled = Signal(str)

    def __init__(self, bridge: EngineBridge, parent: QObject | None = None, stall_ms: int = STALL_MS) -> None:
        super().__init__(parent)
        self._state = bridge.state
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(stall_ms)
        self._timer.timeout.connect(self._on_timeout)
        bridge.state_changed.connect(self._on_state)

    def _on_state(self, state: EngineState) -> None:
        """Each change is progress; at rest there is nothing to wait for."""
        self._state = state
        if state.kind in ("no_model", "ready", "error"):
            self._timer.stop()
        else:
            self._timer.start()

    def _on_timeout(self) -> None:
        sentence = {
            "reading": tr("Engine", "The model file is still being opened; its disk may be slow."),
            "loading": tr("Engine", "The model is still loading: nothing has arrived from the disk for 10 seconds."),
            "warming": tr("Engine", "The model is still warming up: its first step takes longer than expected."),
            "prefill": tr("Engine", "The prompt is still being read: no progress for 10 seconds. Stop with Esc."),
            "generating": tr("Engine", "No new words for 10 seconds. Stop with Esc."),
            "stopping": tr("Engine", "Still stopping: the engine finishes the step it is in."),
        }[self._state.kind]
        self.stalled.emit(sentence)
