"""CalibrateOps: measures this machine in a process of its own, so that estimates need not assume its speed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from app.bridge.engine_bridge import EngineBridge
from app.bridge.ui_thread import UiThread
from app.i18n import filled, tr
from engine.errors import HelperDied
from engine.spawn import HelperProcess

Ask = Callable[[HelperProcess], dict[str, Any]]


class CalibrateOps(QObject):
    """changed(): it began, a second passed, or it ended; ended(sentence); failed(sentence)."""

    changed = Signal()
    ended = Signal(str)
    failed = Signal(str)

    def __init__(self, bridge: EngineBridge, ui: UiThread, ask: Ask | None = None, parent: QObject | None = None) -> None:
        """ask: what measures, called on a thread of its own."""
        super().__init__(parent)
        self._bridge, self._ui = bridge, ui
        self._ask = ask or _measure
        self._helper: HelperProcess | None = None
        self._began_s = 0.0
        self._stopping = False
        self._tick = QTimer(self)
        self._tick.setInterval(1000)
        self._tick.timeout.connect(self._on_tick)

    @property
    def running(self) -> bool:
        """Whether it measures."""
        return self._helper is not None

    @property
    def seconds(self) -> int:
        """Since it began."""
        return int(time.monotonic() - self._began_s) if self.running else 0

    def start(self) -> None:
        """Begins, unless the engine is at work: both would be wrong about each other."""
        if self.running:
            return
        state = self._bridge.state
        if state.answers or state.loading is not None:
            self.failed.emit(
                tr("Calibrate", "The machine cannot be measured while a model works; wait for the answer or stop it.")
            )
            return
        from engine.api.measure_worker import MEMORY_BYTES, WORKER

        self._stopping = False
        self._began_s = time.monotonic()
        self._helper = helper = HelperProcess(WORKER, MEMORY_BYTES)
        self._tick.start()
        self.changed.emit()

        def work() -> None:
            try:
                answer = self._ask(helper)
            except HelperDied as error:
                answer = {"error": str(error)}
            helper.close()
            self._ui.call(lambda: self._on_answer(answer))

        threading.Thread(target=work, name="calibrate", daemon=True).start()

    def stop(self) -> None:
        """Ends measuring; nothing is kept."""
        if self._helper is not None:
            self._stopping = True
            self._kill()

    def _kill(self) -> None:
        pid = None if self._helper is None else self._helper.pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    def _on_tick(self) -> None:
        if self._stopping:  # it was stopped before its process was there
            self._kill()
        self.changed.emit()

    def _on_answer(self, answer: dict[str, Any]) -> None:
        self._helper = None
        self._tick.stop()
        self.changed.emit()
        if self._stopping:
            return
        if "error" in answer:
            self.failed.emit(filled(tr("Calibrate", "The machine could not be measured: %1"), answer["error"]))
            return
        rates = ", ".join(f"{gbps:.0f} GB/s" for gbps in answer["node_gbps"])
        self.ended.emit(
            filled(tr("Calibrate", "Memory reads %1. Models that are planned from now on are estimated with it."), rates)
        )


def _measure(helper: HelperProcess) -> dict[str, Any]:
    from engine.api.measure_worker import LIMIT_S

    return helper.request({}, LIMIT_S)
