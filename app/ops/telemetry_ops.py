"""TelemetryOps: keeps, with each answer, what the machine did while it was written. It watches from the question to the end."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass, field
from functools import partial

from PySide6.QtCore import QObject

from app.bridge.engine_bridge import EngineBridge
from app.log import logger
from app.ops.chat_ops import ChatOps
from app.ops.monitor_ops import MonitorOps
from app.store import telemetry as stored
from app.store.chat_store import ChatStore
from app.store.rows import MessageRow
from app.telemetry.readings import kept
from engine.api.values import HardwareSnapshot

WATCHER = "answers"
PERIOD_S = 1.0
MAX_ROWS = 4096
"""Of an answer that takes hours; beyond it two rows become one."""

log = logger("telemetry")


@dataclass(slots=True)
class _Live:
    """Rows of one answer so far. n_together: readings that are one row by now."""

    began_s: float
    began: float
    times: list[float] = field(default_factory=list)
    rows: list[dict[str, float]] = field(default_factory=list)
    n_together: int = 1
    n_left_out: int = 0

    def add(self, time_s: float, values: dict[str, float]) -> None:
        """One reading; of an answer that takes hours only every so many."""
        self.n_left_out += 1
        if self.n_left_out < self.n_together:
            return
        self.n_left_out = 0
        self.times.append(time_s - self.began)
        self.rows.append(values)
        if len(self.rows) >= MAX_ROWS:
            self.times, self.rows, self.n_together = self.times[::2], self.rows[::2], 2 * self.n_together


class TelemetryOps(QObject):
    """Has no signals: who wants to see it asks `MonitorOps.replay`."""

    def __init__(
        self, chats: ChatOps, monitors: MonitorOps, store: ChatStore, bridge: EngineBridge, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._chats, self._monitors, self._store, self._bridge = chats, monitors, store, bridge
        self._live: dict[int, _Live] = {}
        chats.updated.connect(self._on_updated)
        monitors.read.connect(self._on_read)

    def close(self) -> None:
        """Keeps what there is of answers under way; the store must still be open."""
        for message_id in tuple(self._live):
            self._end(message_id)

    def _on_updated(self, row: MessageRow) -> None:
        if row.role != "assistant":
            return
        if row.status == "streaming":
            self._live.setdefault(row.id, _Live(time.time(), time.monotonic()))
            self._monitors.set_watching(WATCHER, PERIOD_S)
        elif row.id in self._live:
            self._end(row.id)

    def _on_read(self, snapshot: HardwareSnapshot) -> None:
        if not self._live:
            return
        values = kept(self._monitors.now.timeline.newest)
        for live in self._live.values():
            live.add(snapshot.time_s, values)

    def _end(self, message_id: int) -> None:
        live = self._live.pop(message_id)
        if not self._live:
            self._monitors.set_watching(WATCHER, 0.0)
        snapshot, model = self._monitors.now.snapshot, self._bridge.state.model
        if snapshot is None or not live.rows:
            return
        name = "" if model is None else model.name
        # Nobody waits: if it cannot be saved, the chats cannot be either, which is told already.
        self._store.change(partial(_keep, message_id=message_id, live=live, snapshot=snapshot, model=name))


def _keep(db: sqlite3.Connection, message_id: int, live: _Live, snapshot: HardwareSnapshot, model: str) -> None:
    """On the writer's thread, packing too. An answer that was continued keeps what was before."""
    from app.telemetry.message_telemetry import TelemetryDamaged, of_rows, packed, unpacked

    found = of_rows(live.began_s, PERIOD_S * live.n_together, model, snapshot, live.times, live.rows)
    before = stored.telemetry(db, message_id)
    if before is not None:
        try:
            found = unpacked(before).then(found)
        except TelemetryDamaged as error:
            log.warning("telemetry of message %d is not continued: %s", message_id, error)
    stored.keep_telemetry(db, message_id, packed(found))
