"""MonitorOps: what the monitors show and remember. One watch for all who look; nothing is read while nobody does.

Page, side panel and whoever judges read from here. What is *shown* can stand still (`pause`); `now` never does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

from app.bridge.engine_bridge import EngineBridge
from app.bridge.ui_thread import UiThread
from app.errors import StoreError
from app.settings.store import SettingsStore
from app.store.chat_store import ChatStore
from app.telemetry.keys import first_token, prefill
from app.telemetry.recording import Recording, columns_of, default_name
from app.telemetry.shown import Replayed, Shown
from engine.advice.health import Health, PsuBudget
from engine.api.commands import WatchSensors
from engine.api.events import Counters, Event, Finished, ModelUnloaded, Sensors
from engine.api.machine import this_topology
from engine.api.values import EngineSample, HardwareSnapshot, TokenTrace, Topology, Usage

if TYPE_CHECKING:
    from app.telemetry.timeline import Timeline

SPAN_S = 1800.0
FINEST_S = 0.5
"""The shortest period between readings that the timeline keeps apart."""
RECORDING_S = 1.0
KEPT_FIRST_TOKENS = 200
_ALONE_MS = 50
"""A reading of the machine whose counters have not come by then has none: no model is loaded."""
RECORDER = "recording"


class MonitorOps(QObject):
    """read(HardwareSnapshot): each reading, also while what is shown stands still. updated(): what is shown has changed.

    replayed: the message whose telemetry is shown, None while it is that of now. notice(str): a sentence for the user.
    """

    read = Signal(object)
    updated = Signal()
    paused_changed = Signal(bool)
    recording_changed = Signal(str)
    replay_changed = Signal()
    notice = Signal(str)

    def __init__(
        self,
        bridge: EngineBridge,
        settings: SettingsStore,
        ui: UiThread,
        store: ChatStore,
        recordings: Path,
        topology: Callable[[], Topology] = this_topology,
        parent: QObject | None = None,
    ) -> None:
        """recordings: the folder for recordings without a path. topology: asked once, with the first reading."""
        super().__init__(parent)
        self._bridge, self._settings, self._ui, self._store = bridge, settings, ui, store
        self._recordings = recordings
        self._ask_topology = topology
        self._topology: Topology | None = None
        self._watchers: dict[str, tuple[float, bool]] = {}
        self._asked = (0.0, False)
        self._now: Shown | None = None
        self._frozen: Shown | None = None
        self.replayed: Replayed | None = None
        self._pending: HardwareSnapshot | None = None
        self._alone = QTimer(self)
        self._alone.setSingleShot(True)
        self._alone.setInterval(_ALONE_MS)
        self._alone.timeout.connect(lambda: self._take(None))
        self._recording: Recording | None = None
        self.last_usage: Usage | None = None
        self._first_tokens: deque[float] = deque(maxlen=KEPT_FIRST_TOKENS)
        bridge.happened.connect(self._on_event)
        settings.listen(self._on_setting)

    # --- what is shown -----------------------------------------------------------------------------------------------

    @property
    def now(self) -> Shown:
        """The state of all gauges now, whatever is shown."""
        if self._now is None:
            # Not with the module: numpy must not delay the first frame of the window.
            from app.telemetry.timeline import Timeline

            self._now = Shown(Timeline(SPAN_S, FINEST_S))
        return self._now

    @property
    def shown(self) -> Shown:
        """What is shown: as it is now, as it was when it was paused, or what was kept with a message."""
        return self._frozen or self.now

    @property
    def timeline(self) -> Timeline:
        """Of what is shown."""
        return self.shown.timeline

    @property
    def snapshot(self) -> HardwareSnapshot | None:
        """Of what is shown; None before the first reading."""
        return self.shown.snapshot

    @property
    def work(self) -> EngineSample | None:
        """Of what is shown; None without a model."""
        return self.shown.work

    @property
    def trace(self) -> TokenTrace | None:
        """Of what is shown: the last measured step of the model, None before the first."""
        return self.shown.trace

    @property
    def healths(self) -> dict[str, Health]:
        """Of what is shown, by GpuSample.key and "cpu"."""
        return self.shown.healths

    @property
    def psu(self) -> PsuBudget | None:
        """Of what is shown."""
        return self.shown.psu

    @property
    def topology(self) -> Topology:
        """This machine."""
        if self._topology is None:
            self._topology = self._ask_topology()
        return self._topology

    @property
    def first_token_p95_s(self) -> float | None:
        """Of the answers of this run, at most the newest KEPT_FIRST_TOKENS."""
        if not self._first_tokens:
            return None
        ordered = sorted(self._first_tokens)
        return ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]

    # --- watching ----------------------------------------------------------------------------------------------------

    def set_watching(self, owner: str, period_s: float, details: bool = False) -> None:
        """Somebody looks from now on, and wants readings every period_s; 0: it does not any more. The shortest wins.

        details: also which programs hold memory of cards and what crosses their links, which costs the driver.
        """
        if period_s > 0:
            self._watchers[owner] = (period_s, details)
        else:
            self._watchers.pop(owner, None)
        period = min((one[0] for one in self._watchers.values()), default=0.0)
        wanted = (period, any(one[1] for one in self._watchers.values()))
        if wanted != self._asked:
            self._asked = wanted
            self._bridge.submit(WatchSensors(self._bridge.new_id(), *wanted))
            if not period:
                self._alone.stop()
                self._pending = None

    @property
    def period_s(self) -> float:
        """Between readings now; 0 while nothing is read."""
        return self._asked[0]

    # --- standing still ----------------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Whether what is shown stands still; a message that is shown again does not count."""
        return self._frozen is not None and self.replayed is None

    def pause(self, on: bool) -> None:
        """Lets what is shown stand still, or go on with what came meanwhile. Recordings go on."""
        if on == self.is_paused:
            return
        self._end_replay()
        self._frozen = replace(self.now, timeline=self.now.timeline.copy()) if on else None
        self.paused_changed.emit(on)
        self.updated.emit()

    def live(self) -> None:
        """What is shown is of now again."""
        if self.replayed is not None:
            self._end_replay()
            self.updated.emit()
        self.pause(False)

    def replay(self, message_id: int) -> None:
        """Shows what was kept with a message, until `live` or `pause`; `notice` tells where there is nothing."""
        from app.telemetry.message_telemetry import TelemetryDamaged, unpacked
        from app.telemetry.replay import replayed, shown_again

        try:
            data = self._store.telemetry(message_id)
            telemetry = None if data is None else unpacked(data)
        except (StoreError, TelemetryDamaged) as error:
            self.notice.emit(self.tr("The telemetry of this message cannot be read (%1).").replace("%1", str(error)))
            return
        if telemetry is None:
            self.notice.emit(
                self.tr("No telemetry was kept with this message: it was too short, or written by an older version.")
            )
            return
        self.pause(False)
        self._frozen, self.replayed = shown_again(telemetry).judged(self._psu_watts), replayed(message_id, telemetry)
        self.replay_changed.emit()
        self.updated.emit()

    def _end_replay(self) -> None:
        if self.replayed is not None:
            self._frozen = self.replayed = None
            self.replay_changed.emit()

    # --- recording ---------------------------------------------------------------------------------------------------

    @property
    def recording_path(self) -> str:
        """Where a recording is being written, "" while none is."""
        return "" if self._recording is None else str(self._recording.path)

    def record(self, path: str = "") -> None:
        """Writes every reading from now on to a CSV file; "": a new one in the folder for recordings."""
        self.stop_recording()
        target = Path(path) if path else self._recordings / default_name()
        try:
            self._recording = Recording(target, lambda sentence: self._ui.call(lambda: self._on_recording_end(target, sentence)))
        except FileExistsError:
            self.notice.emit(self.tr("%1 is there already; choose another name.").replace("%1", str(target)))
            return
        except OSError as error:
            sentence = self.tr("%1 cannot be made (%2); choose another folder.")
            self.notice.emit(sentence.replace("%1", str(target)).replace("%2", error.strerror or str(error)))
            return
        self.set_watching(RECORDER, RECORDING_S)
        self.recording_changed.emit(str(target))

    def stop_recording(self) -> None:
        """Ends a recording; what was read until now is in the file."""
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.stop()
            self.set_watching(RECORDER, 0.0)
            self.recording_changed.emit("")

    def close(self) -> None:
        """Ends a recording. The engine ends the readings."""
        self.stop_recording()

    def _on_recording_end(self, path: Path, sentence: str) -> None:
        if sentence and self._recording is not None and self._recording.path == path:
            self.stop_recording()
            self.notice.emit(sentence)

    # --- events ------------------------------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Sensors):
            if self._pending is not None:
                self._take(None)
            if self._asked[0] > 0:
                self._pending = event.snapshot
                self._alone.start()
        elif isinstance(event, Counters):
            self._take(event.sample)
        elif isinstance(event, Finished):
            self._on_finished(event.usage)
        elif isinstance(event, ModelUnloaded):
            self._now = replace(self.now, work=None, trace=None)
            self._tell()

    def _take(self, sample: EngineSample | None) -> None:
        """A reading is complete: the machine's, and the engine's beside it."""
        snapshot, self._pending = self._pending, None
        self._alone.stop()
        if snapshot is None:
            return
        timeline = self.now.timeline
        if snapshot.cores and not timeline.node_of_core:
            timeline.node_of_core = {core.index: core.node for core in self.topology.cores}
        timeline.push(snapshot, sample)
        trace = self.now.trace if sample is None or sample.trace is None else sample.trace
        self._now = Shown(timeline, snapshot, sample, trace).judged(self._psu_watts)
        if self._recording is not None:
            devices = () if sample is None else (one.device for one in sample.devices)
            self._recording.add(snapshot.time_s, timeline.newest, columns_of(snapshot, devices))
        self.read.emit(snapshot)
        self._tell()

    def _tell(self) -> None:
        if self._frozen is None:
            self.updated.emit()

    def _on_finished(self, usage: Usage) -> None:
        if usage.ttft_s is None:
            return
        self.last_usage = usage
        self._first_tokens.append(usage.ttft_s)
        self.now.timeline.note(first_token(), usage.ttft_s)
        if usage.prefill_tok_s is not None:
            self.now.timeline.note(prefill(), usage.prefill_tok_s)
        self._tell()

    def _on_setting(self, key: str, value: object) -> None:
        if key == "monitors.psu_watts":
            self._now = self.now.judged(self._psu_watts)
            self._tell()

    @property
    def _psu_watts(self) -> int:
        return self._settings.values.monitors.psu_watts
