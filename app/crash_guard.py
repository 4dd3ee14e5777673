"""CrashGuard: remembers starts that did not end properly. After three within five minutes no model is loaded by itself."""

from __future__ import annotations

import time
from pathlib import Path

LIMIT = 3
WINDOW_S = 300.0


class CrashGuard:
    """The file holds a time a line: one for each start that has not ended yet. A file that cannot be used guards nothing."""

    def __init__(self, file: Path, now_s: float | None = None) -> None:
        self._file = file
        self._now_s = time.time() if now_s is None else now_s
        self._times = [at for at in _read(file) if 0 <= self._now_s - at < WINDOW_S]
        self.safe_mode = len(self._times) >= LIMIT
        self._write([*self._times, self._now_s])

    def ended(self) -> None:
        """The application ends properly: earlier crashes are forgotten."""
        self._write([])

    def _write(self, times: list[float]) -> None:
        try:
            self._file.write_text("".join(f"{at}\n" for at in times), encoding="utf-8")
        except OSError:
            return


def _read(file: Path) -> list[float]:
    try:
        return [float(line) for line in file.read_text(encoding="utf-8").split()]
    except (OSError, ValueError):
        return []
