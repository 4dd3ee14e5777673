"""UiThread: brings results from other threads to the thread of the window."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from PySide6.QtCore import QObject, Qt, Signal

from app.errors import UserFacingError

T = TypeVar("T")


class UiThread(QObject):
    """Lives on the thread that made it. Once closed it calls nothing any more."""

    _handed_over = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._open = True
        self._handed_over.connect(self._on_handed_over, Qt.ConnectionType.QueuedConnection)

    def call(self, function: Callable[[], None]) -> None:
        """Runs `function` on this object's thread, soon. Safe from any thread."""
        if self._open:
            self._handed_over.emit(function)

    def deliver(self, future: Future[T], success: Callable[[T], None], failure: Callable[[UserFacingError], None]) -> None:
        """Hands over how the future ends. An error that is no UserFacingError is a bug and is raised on this thread."""

        def ended(done: Future[T]) -> None:
            self.call(lambda: self._end(done, success, failure))

        future.add_done_callback(ended)

    @property
    def is_open(self) -> bool:
        """Whether what is asked of workers still arrives: once the application ends they take nothing any more."""
        return self._open

    def close(self) -> None:
        """Drops whatever arrives from now on."""
        self._open = False

    @staticmethod
    def _end(done: Future[T], success: Callable[[T], None], failure: Callable[[UserFacingError], None]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            success(done.result())
        elif isinstance(error, UserFacingError):
            failure(error)
        else:
            raise error

    def _on_handed_over(self, function: Callable[[], None]) -> None:
        if self._open:
            function()
