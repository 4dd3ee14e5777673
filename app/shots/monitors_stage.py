"""MonitorsStage: the Monitors page over what sensors and an engine would have told in the last minutes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QEventLoop, QTimer

from app.bridge.engine_bridge import EngineBridge
from app.bridge.ui_thread import UiThread
from app.monitors import timeline as keys
from app.monitors.facts import Facts
from app.ops.monitor_ops import MonitorOps
from app.settings.store import SettingsStore
from app.shots import monitors_machine
from app.shots.scripted_client import ScriptedClient
from app.store.chat_store import ChatStore
from app.windows.monitors_controller import MonitorsController
from app.windows.monitors_facts import Found, MonitorsFacts
from engine.api.events import Counters, Sensors
from engine.api.values import EngineSample, HardwareSnapshot, RequestId, Topology

SECONDS = 300
_WATCH = RequestId("watch")
_WAIT_MS = 2000


class _Told(MonitorsFacts):
    """Facts that are told instead of found."""

    told = Facts()

    def facts(self) -> Facts:
        """As they were told."""
        return self.told


class MonitorsStage:
    """Made for one picture or test; `close` ends its threads. Times are seconds before now."""

    def __init__(self, machine: Topology, facts: Facts) -> None:
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self.machine = machine
        self.client = ScriptedClient()
        self._ui, self._pool = UiThread(), ThreadPoolExecutor(1)
        self.bridge = EngineBridge(self.client)
        self.settings = SettingsStore(folder / "settings.toml")
        self._store = ChatStore(folder / "chats.db")
        self.monitors = MonitorOps(self.bridge, self.settings, self._ui, self._store, folder, lambda: machine)
        self.facts = _Told(self.monitors, self.bridge, self._ui, self._pool, lambda model: Found())
        self.facts.told = facts
        self.controller = MonitorsController(self.monitors, self.facts, self.settings)
        self.page = self.controller.page

    def tell(self, snapshot: HardwareSnapshot, sample: EngineSample | None) -> None:
        """One reading arrives, as it does from the engine, and is shown."""
        loop = QEventLoop()
        self.monitors.read.connect(lambda _snapshot: loop.quit())
        QTimer.singleShot(_WAIT_MS, loop.quit)
        self.client.tell(Sensors(_WATCH, snapshot))
        if sample is not None:
            self.client.tell(Counters(_WATCH, sample))
        loop.exec()

    def remember(
        self,
        reading: Callable[[float], HardwareSnapshot],
        work: Callable[[float], EngineSample | None],
        seconds: int = SECONDS,
    ) -> None:
        """Every second of the last minutes; the newest is what is shown."""
        now = time.monotonic()
        line = self.monitors.now.timeline
        line.node_of_core = {core.index: core.node for core in self.machine.cores}
        for i in range(seconds):
            at = float(i)
            sample = work(at)
            line.push(replace(reading(at), time_s=now - seconds + at), sample)
            if sample is not None:
                line.note(keys.prefill(), monitors_machine.wave(at, 212, 9, 2))
                line.note(keys.first_token(), monitors_machine.wave(at, 9.9, 0.6, 3))
        self.controller.shown(True)
        last = float(seconds)
        sample = work(last)
        self.monitors.set_watching("stage", 1.0)
        self.tell(replace(reading(last), time_s=now), sample)
        self.controller.refresh()

    def close(self) -> None:
        """Ends what runs beside the window."""
        self.controller.shown(False)
        self.monitors.close()
        self._ui.close()
        self.bridge.close()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._store.close()
        self._folder.cleanup()
