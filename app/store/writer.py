"""The one thread that writes to the database: jobs in order, each a transaction, and the journal of answers that stream.

Nobody waits for it on the UI thread: a job gives a Future, the journal gives nothing and never loses its newest state.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from app.errors import StoreError
from app.log import logger
from app.store.chats import Answer, write_answer
from app.store.db import DatabaseLocked, DbBug, known

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], T]

JOURNAL_S = 0.2
"""An answer that streams is written at most this long after its text changed; 0.2 s and the bridge's 33 ms stay under 250 ms."""
JOURNAL_TOKENS = 64
RETRY_S = 2.0
LOCK_RETRY_S = 0.1

log = logger("store")


class _Pending:
    """The newest state of one answer that is not on disk yet."""

    __slots__ = ("answer", "due", "n_written")

    def __init__(self, answer: Answer, due: float, n_written: int) -> None:
        self.answer = answer
        self.due = due
        self.n_written = n_written


class Writer:
    """Owns the writing connection. on_trouble is called on the writer's thread: with the error when the journal cannot be
    written, with None once it could again."""

    def __init__(self, connection: sqlite3.Connection, path: Path, on_trouble: Callable[[StoreError | None], None]) -> None:
        self._db = connection
        self._path = path
        self._on_trouble = on_trouble
        self._wake = threading.Condition()
        self._jobs: deque[tuple[Job[Any], Future[Any]]] = deque()
        self._pending: dict[int, _Pending] = {}
        self._n_written: dict[int, int] = {}
        self._closing = False
        self._troubled = False
        self._retry_at = 0.0
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Job[T]) -> Future[T]:
        """Runs the job in a transaction. The Future ends in its result, or in a StoreError, or in what the job raised.

        A database locked by another process is waited for; all other failures end the Future.
        """
        future: Future[T] = Future()
        with self._wake:
            if self._closing:
                future.set_exception(StoreError("Layerdeck is closing; the change was not saved."))
                return future
            self._jobs.append((job, future))
            self._wake.notify()
        return future

    def journal(self, answer: Answer) -> None:
        """Notes the newest state of an answer. It is written within JOURNAL_S or JOURNAL_TOKENS, at once when it ended."""
        with self._wake:
            now = time.monotonic()
            before = self._pending.get(answer.message_id)
            n_written = self._n_written.get(answer.message_id, 0)
            due = now + JOURNAL_S if before is None else before.due
            if answer.status != "streaming" or answer.figures.n_tokens - n_written >= JOURNAL_TOKENS:
                due = now
            self._pending[answer.message_id] = _Pending(answer, due, n_written)
            self._wake.notify()

    def unwritten(self) -> dict[int, Answer]:
        """Answers whose newest state is not on disk yet, by message id: readers lay them over what they read."""
        with self._wake:
            return {message_id: pending.answer for message_id, pending in self._pending.items()}

    def close(self, timeout_s: float = 10.0) -> None:
        """Writes what is pending, then ends the thread and closes the connection. Idempotent."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout_s)

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._step():
                pass
        finally:
            self._db.close()

    def _step(self) -> bool:
        with self._wake:
            while not self._jobs and not self._closing:
                wait_s = self._journal_wait_s()
                if wait_s is not None and wait_s <= 0:
                    break
                self._wake.wait(wait_s)
            job = self._jobs.popleft() if self._jobs else None
            closing = self._closing and job is None
            due = self._due(everything=closing)
        self._write(due)
        if job is not None:
            self._do(*job)
        return not closing

    def _journal_wait_s(self) -> float | None:
        if not self._pending:
            return None
        first = min(pending.due for pending in self._pending.values())
        return max(first, self._retry_at) - time.monotonic()

    def _due(self, *, everything: bool) -> list[_Pending]:
        now = time.monotonic()
        if now < self._retry_at and not everything:
            return []
        return [pending for pending in self._pending.values() if everything or pending.due <= now]

    def _write(self, due: list[_Pending]) -> None:
        if not due:
            return
        try:
            self._transaction(lambda db: _write_all(db, due))
        except sqlite3.Error as error:
            self._trouble(error)
            return
        with self._wake:
            for pending in due:
                self._written(pending)
        if self._troubled:
            self._troubled = False
            self._on_trouble(None)

    def _written(self, pending: _Pending) -> None:
        message_id = pending.answer.message_id
        if self._pending[message_id] is pending:
            del self._pending[message_id]
        if pending.answer.status == "streaming":
            self._n_written[message_id] = pending.answer.figures.n_tokens
        else:
            self._n_written.pop(message_id, None)

    def _trouble(self, error: sqlite3.Error) -> None:
        """Keeps everything, tries again later, and says so once."""
        ours = known(error, self._path)
        with self._wake:
            self._retry_at = time.monotonic() + (LOCK_RETRY_S if isinstance(ours, DatabaseLocked) else RETRY_S)
        if self._troubled:
            return
        self._troubled = True
        log.info("journal waits: %s", ours)
        self._on_trouble(ours if isinstance(ours, StoreError) else StoreError(str(ours)))

    def _do(self, job: Job[Any], future: Future[Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(self._patiently(job))
        except sqlite3.Error as error:
            ours = known(error, self._path)
            if isinstance(ours, DbBug):
                log.error("%s", ours)
            future.set_exception(ours)
        except BaseException as error:  # the caller gets it, whatever it is; the thread lives on
            future.set_exception(error)

    def _patiently(self, job: Job[T]) -> T:
        """The job's result; another process that holds the database is waited for, which on_trouble tells."""
        waits = False
        while True:
            try:
                result = self._transaction(job)
            except sqlite3.Error as error:
                ours = known(error, self._path)
                if not isinstance(ours, DatabaseLocked) or self._closing:
                    raise
                if not waits:
                    waits = True
                    self._on_trouble(ours)
                time.sleep(LOCK_RETRY_S)
            else:
                if waits:
                    self._on_trouble(None)
                return result

    def _transaction(self, job: Job[T]) -> T:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            result = job(self._db)
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        return result


def _write_all(db: sqlite3.Connection, due: list[_Pending]) -> None:
    for pending in due:
        write_answer(db, pending.answer)
