"""RenderPool: one worker thread for what is too slow for the window: colouring code and setting formulas."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from PySide6.QtCore import QObject, Signal
from shiboken6 import isValid

log = logging.getLogger("layerdeck.ui")


class RenderPool(QObject):
    """Runs pure functions off the window's thread and hands their results back on it. The owner calls close()."""

    _ready = Signal(object, object, object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="render")
        self._pending = 0
        self._closed = False
        self._ready.connect(self._on_ready)

    def run(self, owner: QObject, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Call done(result) on this thread when work() is through; nothing happens if work fails, which is logged.

        owner: what the result is for; when it is gone by then (another chat is shown), the result is dropped.
        """
        if self._closed:
            return
        self._pending += 1
        self._executor.submit(work).add_done_callback(lambda future: self._emit(owner, future, done))

    def _emit(self, owner: QObject, future: Future[Any], done: Callable[[Any], None]) -> None:
        if self._closed or future.cancelled():
            return
        self._ready.emit(owner, future, done)

    def _on_ready(self, owner: QObject, future: Future[Any], done: Callable[[Any], None]) -> None:
        self._pending -= 1
        error = future.exception()
        if error is not None:
            log.error("a block could not be rendered", exc_info=error)
        elif not self._closed and isValid(owner):
            done(future.result())

    @property
    def pending(self) -> int:
        """How many results are still to come."""
        return self._pending

    def close(self) -> None:
        """Forget what is queued and end the thread."""
        self._closed = True
        self._executor.shutdown(wait=True, cancel_futures=True)
