"""The SQLite file of the chats: durability, migrations, the check on opening, and SQLite's errors as sentences.

`KnownDbError` is the world's fault (disk full, locked, read-only, damaged); `DbBug` is ours.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from app.errors import StoreError

BUSY_MS = 1000
QUICK_CHECK_BYTES = 64_000_000
"""A database up to this size is checked on each start (64 MB: about 0.2 s); a larger one only by SQLite as it reads."""


class KnownDbError(StoreError):
    """The database cannot be used as asked, and the user can act."""


class DatabaseLocked(KnownDbError):
    """Another process holds the database. Trying again helps."""


class DatabaseFull(KnownDbError):
    """The disk is full."""


class DatabaseReadOnly(KnownDbError):
    """The file or its folder cannot be written."""


class DatabaseDamaged(KnownDbError):
    """The file is no database or is damaged."""


class DatabaseNewer(KnownDbError):
    """The file was written by a newer version."""


class DbBug(Exception):
    """A broken promise of the store: a constraint violated, a statement that does not compile."""


_FULL = {sqlite3.SQLITE_FULL}
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_READ_ONLY = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_BUGS = {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISUSE, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH}


def known(error: sqlite3.Error, path: Path | str) -> KnownDbError | DbBug:
    """SQLite's error as ours, with a sentence that says what to do."""
    code = (getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_ERROR) & 0xFF
    if code in _FULL:
        return DatabaseFull(
            f"The disk that holds {path} is full; free some space, then try again. Nothing already saved is lost."
        )
    if code in _LOCKED:
        return DatabaseLocked(f"Another program is using {path}; close it. Layerdeck waits, and saves once the file is free.")
    if code in _DAMAGED:
        return DatabaseDamaged(f"The chat database {path} is damaged; restart Layerdeck to set it aside and start a new one.")
    if code in _READ_ONLY:
        return DatabaseReadOnly(f"{path} cannot be written; make the file and its folder writable, then try again.")
    if code == sqlite3.SQLITE_IOERR:
        return KnownDbError(
            f"The disk reported an error at {path}; check that it is connected and has free space, then try again."
        )
    if code in _BUGS:
        return DbBug(f"{path}: {error}")
    return KnownDbError(f"The chat database {path} cannot be used: {error}; check the disk, then try again.")


def migrations() -> tuple[str, ...]:
    """The scripts that lead from an empty file to the newest schema; script i leads from version i to i + 1."""
    folder = files("app.store")
    names = ("schema.sql", *(f"schema_{number}.sql" for number in range(2, 6)))
    return tuple((folder / name).read_text(encoding="utf-8") for name in names)


def migrate(connection: sqlite3.Connection, scripts: Sequence[str], path: Path | str) -> None:
    """Brings the schema up to date, one transaction a version: killed in between, the next start goes on where it stopped.

    Raises DatabaseNewer when the file knows a version that we do not: it is never migrated down.
    """
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(scripts):
        raise DatabaseNewer(
            f"The chats in {path} were saved by a newer version of Layerdeck (format {version}, this version knows up to "
            f"{len(scripts)}); install that version again to use them. The file was not changed."
        )
    for number in range(version, len(scripts)):
        connection.executescript(f"BEGIN IMMEDIATE;\n{scripts[number]}\nPRAGMA user_version = {number + 1};\nCOMMIT;")


def connect(path: Path | str, *, read_only: bool = False) -> sqlite3.Connection:
    """One connection with this store's settings, in autocommit mode. Raises sqlite3.Error."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000)
    # A text with a flipped bit is still worth showing.
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA wal_autocheckpoint = 1000")
        if read_only:
            connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def open_checked(path: Path) -> sqlite3.Connection:
    """The connection to a sound database, made when missing and brought up to date. Raises sqlite3.DatabaseError."""
    size = path.stat().st_size if path.exists() else 0
    try:
        connection = connect(path)
    except UnicodeDecodeError as error:  # SQLite quotes the damaged schema in its message
        raise _damaged(str(error)) from error
    try:
        _check(connection, size)
        migrate(connection, migrations(), path)
        _read_each_table(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, size: int) -> None:
    """Raises DatabaseError (corrupt) for a file that fails SQLite's own check or has tables but no version."""
    try:
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0] if 0 < size <= QUICK_CHECK_BYTES else "ok"
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        n_tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    except UnicodeDecodeError as error:
        raise _damaged(str(error)) from error
    if verdict != "ok" or (version == 0 and n_tables > 0):
        raise _damaged(f"quick_check: {verdict}, version {version}, {n_tables} tables")


def _read_each_table(connection: sqlite3.Connection) -> None:
    """Finds a damaged schema or search index, which the check of pages does not cover."""
    try:
        for table in ("chat", "message", "message_search", "title_search", "placement_preset", "message_telemetry"):
            connection.execute(f"SELECT rowid FROM {table} ORDER BY rowid DESC LIMIT 1").fetchone()
    except UnicodeDecodeError as error:
        raise _damaged(str(error)) from error
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:  # no such table or column: the newest schema has them
            raise _damaged(str(error)) from error
        raise


def _damaged(verdict: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(verdict)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error
