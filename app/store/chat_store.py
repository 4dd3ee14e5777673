"""ChatStore: what the application holds of the chats. Reads answer at once, on the caller's connection; changes give a Future."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from app.errors import StoreError
from app.log import logger
from app.store import chats, search, telemetry
from app.store.chats import Answer
from app.store.db import connect, known
from app.store.opening import open_database
from app.store.rows import ChatRow, MessageRow
from app.store.writer import Writer

T = TypeVar("T")
log = logger("store")


class ChatStore:
    """One open database. Made and used by one thread (reads); the writer's thread does the rest."""

    def __init__(self, path: Path, on_trouble: Callable[[StoreError | None], None] = lambda error: None) -> None:
        """Opens or makes the database at `path`; `notice` says what the user should know. Raises KnownDbError."""
        opened = open_database(path)
        self.path = path
        self.notice = opened.notice
        try:
            recovered = self._recover(opened.connection)
            self._reader = connect(path, read_only=True)
        except sqlite3.Error as error:
            opened.connection.close()
            raise known(error, path) from error
        self._recovered = recovered
        self._writer = Writer(opened.connection, path, on_trouble)

    @staticmethod
    def _recover(db: sqlite3.Connection) -> tuple[int, ...]:
        db.execute("BEGIN IMMEDIATE")
        try:
            interrupted = chats.interrupt_streaming(db)
            chats.purge(db)
            db.execute("COMMIT")
        except sqlite3.Error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return interrupted

    def close(self) -> None:
        """Writes what is pending and closes. Idempotent."""
        self._writer.close()
        self._reader.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return query(self._reader)
        except sqlite3.Error as error:
            raise known(error, self.path) from error

    def chats(self) -> tuple[ChatRow, ...]:
        """All chats, newest first. Raises KnownDbError, like every reading method."""
        return self._read(chats.all_chats)

    def unfinished_chat(self) -> int | None:
        """The chat to go on with after a start: where a crash cut an answer off, else the newest if it ends in such an answer."""
        there = {row.id for row in self.chats()}
        cut_off = [chat_id for chat_id in self._recovered if chat_id in there]
        return cut_off[-1] if cut_off else self._read(chats.unfinished)

    def chat(self, chat_id: int) -> ChatRow:
        """One chat. Raises NoSuchRow."""
        return self._read(lambda db: chats.chat(db, chat_id))

    def messages(self, chat_id: int) -> tuple[MessageRow, ...]:
        """The branch that is shown, with what the journal still has to write. Raises NoSuchRow."""
        unwritten = self._writer.unwritten()
        row = self.chat(chat_id)
        return tuple(_laid_over(m, unwritten) for m in self._read(lambda db: chats.branch(db, chat_id, row.leaf_id)))

    def branch_to(self, message_id: int) -> tuple[MessageRow, ...]:
        """The messages from the first one to this one. Raises NoSuchRow."""
        unwritten = self._writer.unwritten()
        row = self.message(message_id)
        return tuple(_laid_over(m, unwritten) for m in self._read(lambda db: chats.branch(db, row.chat_id, message_id)))

    def message(self, message_id: int) -> MessageRow:
        """One message. Raises NoSuchRow."""
        unwritten = self._writer.unwritten()
        return _laid_over(self._read(lambda db: chats.message(db, message_id)), unwritten)

    def search(self, query: str) -> tuple[search.SearchHit, ...]:
        """Chats whose title or messages hold every word of the query, newest first."""
        return self._read(lambda db: search.search(db, query))

    def placement(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """What a query of `app.store.placements` finds."""
        return self._read(query)

    def telemetry(self, message_id: int) -> bytes | None:
        """What was kept of the machine with a message, packed."""
        return self._read(lambda db: telemetry.telemetry(db, message_id))

    # --- changing ----------------------------------------------------------------------------------------------------

    def change(self, job: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Runs a function of `app.store.chats` in one transaction on the writer's thread."""
        return self._writer.submit(job)

    def journal(self, answer: Answer) -> None:
        """Notes the newest state of an answer; it reaches the disk within 0.2 s, at once when the answer ended."""
        self._writer.journal(answer)


def _laid_over(row: MessageRow, unwritten: dict[int, Answer]) -> MessageRow:
    answer = unwritten.get(row.id)
    if answer is None:
        return row
    return replace(
        row, text=answer.text, status=answer.status, figures=answer.figures, error=answer.error, error_kind=answer.error_kind
    )
