"""BackupOps: sees to it that there is a copy of the chats of each day, made by a worker thread."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PySide6.QtCore import QObject, QTimer

from app.log import logger
from app.store.backup import back_up

FIRST_MS = 60_000
AGAIN_MS = 3_600_000
log = logger("ops")


class BackupOps(QObject):
    """Looks a minute after the start, then every hour. A copy that fails is tried again with the next look."""

    def __init__(self, database: Path, worker: ThreadPoolExecutor, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._database = database
        self._worker = worker
        self._timer = QTimer(self)
        self._timer.setInterval(FIRST_MS)
        self._timer.timeout.connect(self.run)
        self._timer.start()

    def run(self) -> None:
        """Has today's copy made, if there is none."""
        self._timer.setInterval(AGAIN_MS)
        self._worker.submit(self._back_up)

    def stop(self) -> None:
        """No more looks."""
        self._timer.stop()

    def _back_up(self) -> None:
        try:
            back_up(self._database)
        except (sqlite3.Error, OSError) as error:
            log.info("no backup: %s", error)
