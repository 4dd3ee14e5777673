"""MonitorsController: joins the Monitors page to what the monitors remember. Hidden it asks for nothing and paints nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from PySide6.QtCore import QEvent, QObject, QPoint, QTimer
from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QMenu, QWidget

from app.actions.registry import Condition
from app.errors import SettingsError
from app.i18n import filled, tr
from app.monitors import gpu_figures, machine_figures, node_figures
from app.monitors import timeline as keys
from app.monitors.monitors_page import MonitorsPage
from app.monitors.time_plot import Series, TimePlot
from app.monitors.timeline import Timeline
from app.monitors.trace_figures import trace_figures
from app.ops.monitor_ops import MonitorOps
from app.settings.schema import MONITOR_PERIODS
from app.settings.store import SettingsStore
from app.telemetry.shown import Replayed, Shown
from app.widgets.format import seconds_text
from app.widgets.toast import Toast
from app.windows.monitors_facts import MonitorsFacts
from app.windows.page_door import PageController

OWNER = "monitors"
SILENT_S = 2.5
"""After so long without a reading the page says so; with longer periods, after as many of them."""
TILE_KEYS = {
    "decode": keys.decode(),
    "prefill": keys.prefill(),
    "first_token": keys.first_token(),
    "vram": keys.vram_used(),
    "ram": keys.ram_used(),
    "power": keys.power(),
}


class MonitorsController(PageController):
    """`page` is shown by the window; readings come while it is."""

    def __init__(
        self, monitors: MonitorOps, facts: MonitorsFacts, settings: SettingsStore, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._monitors, self._facts, self._settings = monitors, facts, settings
        self.page = MonitorsPage()
        self._shown = False
        self._recorded_since = 0.0
        self._recorded_to = ""
        self._silence = QTimer(self)
        self._silence.setInterval(1000)
        self._silence.timeout.connect(self._show_alarm)
        self._last_reading_s = 0.0
        self._connect()
        self._apply_settings()

    def _connect(self) -> None:
        page, monitors = self.page, self._monitors
        monitors.updated.connect(self._on_updated)
        monitors.read.connect(self._on_read)
        monitors.paused_changed.connect(self._show_mode)
        monitors.replay_changed.connect(self._show_mode)
        monitors.recording_changed.connect(self._on_recording)
        monitors.notice.connect(self.notice)
        self._facts.changed.connect(self._on_updated)
        page.pause_requested.connect(self.toggle_pause)
        page.record_requested.connect(self.toggle_recording)
        page.header.span_chosen.connect(lambda key: self._set("monitors.span", key))
        page.header.period_clicked.connect(self._open_periods)
        page.board.pin_requested.connect(self.toggle_pin)
        page.mode.chosen.connect(monitors.live)
        self._settings.listen(self._on_setting)

    # --- the window --------------------------------------------------------------------------------------------------

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
        if on == self._shown:
            return
        self._shown = on
        window = self.page.window()
        if on:
            window.installEventFilter(self)
        else:
            window.removeEventFilter(self)
        self._watch()

    def handlers(self) -> dict[str, Callable[[], object]]:
        """What the actions of the page do."""
        return {"pause_monitors": self.toggle_pause, "record_monitors": self.toggle_recording}

    def conditions(self) -> set[Condition]:
        """Which actions can be done while the page is shown."""
        return {"monitors_shown"}

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.WindowStateChange, QEvent.Type.Show, QEvent.Type.Hide):
            self._watch()
        return False

    @property
    def is_seen(self) -> bool:
        """Whether anybody can see the page."""
        window = self.page.window()
        return self._shown and window.isVisible() and not window.isMinimized()

    def _watch(self) -> None:
        period = self._settings.values.monitors.period_s if self.is_seen else 0.0
        self._monitors.set_watching(OWNER, period, details=True)
        if period:
            self._last_reading_s = time.monotonic()
            self._silence.start()
            self.refresh()
        else:
            self._silence.stop()

    # --- what is shown -----------------------------------------------------------------------------------------------

    def _on_read(self, _snapshot: object) -> None:
        self._last_reading_s = time.monotonic()

    def _on_updated(self) -> None:
        if self.is_seen:
            self.refresh()

    def refresh(self) -> None:
        """Shows what the monitors know."""
        shown, page = self._monitors.shown, self.page
        snapshot = shown.snapshot
        if snapshot is None:
            page.board.set_trace(trace_figures(None))
            page.header.set_machine(tr("Monitors", "waiting for the first reading"))
            return
        facts, choice = self._facts.facts(), self._settings.values.monitors.span
        if self._monitors.replayed is not None:
            choice = "all"
        span_s = machine_figures.span_seconds(choice, shown.timeline)
        page.header.set_machine(machine_figures.machine_text(snapshot, facts))
        cost = snapshot.cost
        page.header.set_period(self._settings.values.monitors.period_s, "" if cost is None else cost.note)
        self._show_recording()
        board = page.board
        board.set_tiles(machine_figures.tiles(shown, facts, span_s))
        board.set_gpus(gpu_figures.gpu_figures(shown, facts), no_gpu_text(shown))
        nodes = node_figures.node_figures(shown, facts, span_s, machine_figures.span_text(choice, span_s))
        board.set_nodes(nodes, node_figures.cores_note(snapshot, facts))
        board.set_trace(trace_figures(shown.trace, facts.trace_time, again=self._monitors.replayed is not None))
        self._show_lines(shown, span_s)
        self._show_alarm()

    def _show_lines(self, shown: Shown, span_s: float) -> None:
        board, line = self.page.board, shown.timeline
        lines: list[tuple[TimePlot, str]] = [(tile.plot, TILE_KEYS[name]) for name, tile in board.tiles.items()]
        works = gpu_figures.works_by_card(shown)
        for card in board.gpus:
            if card.figures is not None:
                lines.append((card.plot, gpu_figures.plot_key(card.figures.key, works.get(card.figures.key))))
        for node in board.nodes:
            if node.figures is not None:
                lines.append((node.plot, node_figures.plot_key(node.figures.node)))
        for plot, key in lines:
            plot.set_series(series_of(line, key, span_s, plot.n_points))

    def _show_alarm(self) -> None:
        if not self.is_seen:
            return
        page, monitors = self.page, self._monitors
        silent_s = time.monotonic() - self._last_reading_s
        period = self._settings.values.monitors.period_s
        if silent_s > max(SILENT_S, 2.5 * period):
            sentence = tr("Monitors", "The sensors have not answered for %1; what is shown is of then.")
            page.alarm.say(filled(sentence, seconds_text(round(silent_s))), "warn", "triangle-alert")
        else:
            told = page.told if monitors.shown is monitors.now else frozenset[str]()
            text, tone = machine_figures.alarm(monitors.shown, gpu_figures.titles(monitors.shown), told)
            page.alarm.say(text, "warn" if tone == "warn" else "err", "triangle-alert")
        page.fit_notices()

    # --- standing still, recording -----------------------------------------------------------------------------------

    def toggle_pause(self) -> None:
        """Space."""
        self._monitors.pause(not self._monitors.is_paused)

    def _show_mode(self) -> None:
        """Whether what is shown is of now, and the way back."""
        page, paused, again = self.page, self._monitors.is_paused, self._monitors.replayed
        page.header.set_paused(paused)
        if again is not None:
            page.mode.say(replay_text(again), "accent", "history", tr("Monitors", "Back to live"))
        elif paused:
            sentence = tr("Monitors", "Paused at %1. Readings go on in the background.")
            page.mode.say(filled(sentence, time.strftime("%H:%M:%S")), "accent", "pause", tr("Monitors", "Continue"))
        else:
            page.mode.say("")
        page.fit_notices()

    def toggle_recording(self) -> None:
        """R."""
        if self._monitors.recording_path:
            self._monitors.stop_recording()
        else:
            self._monitors.record()

    def _on_recording(self, path: str) -> None:
        if path:
            self._recorded_since, self._recorded_to = time.monotonic(), path
        elif self._recorded_to:
            self.notice.emit(filled(tr("Monitors", "Recorded to %1"), self._recorded_to))
            self._recorded_to = ""
        self._show_recording()

    def _show_recording(self) -> None:
        seconds = int(time.monotonic() - self._recorded_since)
        self.page.header.set_recording(self._monitors.recording_path, f"{seconds // 60}:{seconds % 60:02}")

    # --- settings ----------------------------------------------------------------------------------------------------

    def toggle_pin(self, key: str) -> None:
        """Puts a gauge into the side panel of the chat, or takes it out."""
        pinned: Sequence[str] = self._settings.values.monitors.pinned
        there = key in pinned
        self._set("monitors.pinned", tuple(one for one in pinned if one != key) if there else (*pinned, key))
        if not there and key in self._settings.values.monitors.pinned:
            self.notice.emit(tr("Monitors", "Pinned beside the chat"))

    def _set(self, key: str, value: object) -> None:
        try:
            self._settings.set(key, value)
        except SettingsError as error:
            self.notice.emit(str(error))

    def _on_setting(self, key: str, value: object) -> None:
        if key.startswith("monitors."):
            self._apply_settings()
            if key == "monitors.period_s":
                self._watch()
            self._on_updated()

    def _apply_settings(self) -> None:
        monitors = self._settings.values.monitors
        self.page.header.spans.set_current(monitors.span)
        self.page.header.set_period(monitors.period_s)
        self.page.board.set_pinned(frozenset(monitors.pinned))

    def _open_periods(self) -> None:
        menu, button = QMenu(self.page), self.page.header.period
        menu.aboutToHide.connect(menu.deleteLater)
        group = QActionGroup(menu)
        for seconds in MONITOR_PERIODS:
            action = menu.addAction(filled(tr("Monitors", "Every %1 s"), f"{seconds:g}"))
            action.setCheckable(True)
            action.setChecked(seconds == self._settings.values.monitors.period_s)
            group.addAction(action)
            action.triggered.connect(lambda _on=False, value=seconds: self._set("monitors.period_s", value))
        menu.popup(button.mapToGlobal(QPoint(0, button.height() + 4)))


def series_of(timeline: Timeline, key: str, span_s: float, n_points: int) -> Series | None:
    """The line of a gauge; None where nothing was read yet."""
    end = timeline.newest_s
    if end is None:
        return None
    times, values = timeline.series(key, span_s, n_points)
    return Series(times, values, end - span_s, end)


def replay_text(again: Replayed) -> str:
    """Which message is shown again."""
    sentence = tr("Monitors", "As it was while %1 wrote an answer at %2 (%3)")
    return filled(
        sentence, again.model or tr("Monitors", "the model"), again.began.strftime("%Y-%m-%d %H:%M"), seconds_text(again.span_s)
    )


def no_gpu_text(shown: Shown) -> str:
    """Why there are no cards."""
    snapshot = shown.snapshot
    if snapshot is None or snapshot.gpus:
        return ""
    return snapshot.gpu_problem or tr("Monitors", "This machine has no graphics card: everything runs on its processors.")
