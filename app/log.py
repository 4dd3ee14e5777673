"""Named loggers of the application (`layerdeck.store`, ...), a log file, and the ring of last lines the crash dialog shows."""

from __future__ import annotations

import logging
import logging.handlers
from collections import deque
from pathlib import Path

ROOT = "layerdeck"
RING_LINES = 500
FILE_BYTES = 1_000_000
_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def logger(name: str) -> logging.Logger:
    """The logger of one part: `ui`, `store`, `bridge`, `settings`, `ops`."""
    return logging.getLogger(f"{ROOT}.{name}")


class RingHandler(logging.Handler):
    """Keeps the last lines in memory."""

    def __init__(self, lines: int = RING_LINES) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=lines)
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))

    def text(self) -> str:
        """All kept lines, oldest first."""
        return "\n".join(self._lines)


RING = RingHandler()


def set_up(log_file: Path | None) -> None:
    """Starts logging to the ring and, when it can be written, to `log_file`. Message text of chats is never logged."""
    root = logging.getLogger(ROOT)
    root.setLevel(logging.INFO)
    if RING not in root.handlers:
        root.addHandler(RING)
    if log_file is None or any(isinstance(h, logging.handlers.RotatingFileHandler) for h in root.handlers):
        return
    try:
        handler = logging.handlers.RotatingFileHandler(log_file, maxBytes=FILE_BYTES, backupCount=1, encoding="utf-8")
    except OSError as error:
        root.info("no log file: %s", error)
        return
    handler.setFormatter(logging.Formatter(_FORMAT))
    root.addHandler(handler)
