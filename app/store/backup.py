"""Daily copies of the database, the newest seven kept, made beside the writer by `VACUUM INTO`. Not for the UI thread."""

from __future__ import annotations

import datetime
import sqlite3
from pathlib import Path

from app.log import logger

KEEP = 7
log = logger("store")


def backup_folder(database: Path) -> Path:
    """Where the copies of a database lie."""
    return database.parent / "backups"


def backups(database: Path) -> tuple[Path, ...]:
    """The copies there are, newest first."""
    return tuple(sorted(backup_folder(database).glob(f"{database.stem}-????????.db"), reverse=True))


def back_up(database: Path, today: datetime.date | None = None) -> Path | None:
    """Makes the copy of today unless it is there; the path of a new one. Older ones beyond KEEP go, once the new one is whole.

    Raises sqlite3.Error or OSError; the copies that were there are then untouched. An empty database is not worth one.
    """
    day = datetime.date.today() if today is None else today
    folder = backup_folder(database)
    target = folder / f"{database.stem}-{day:%Y%m%d}.db"
    if target.exists() or count_messages(database) == 0:
        return None
    folder.mkdir(mode=0o700, exist_ok=True)
    unfinished = target.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
    try:
        connection.execute("VACUUM INTO ?", (str(unfinished),))
        unfinished.replace(target)
    finally:
        connection.close()
        unfinished.unlink(missing_ok=True)
    for old in backups(database)[KEEP:]:
        old.unlink(missing_ok=True)
    log.info("backed up as %s", target.name)
    return target


def count_messages(database: Path) -> int:
    """Messages that are not deleted in an intact database; 0 for one that cannot be read."""
    try:
        connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error:
        return 0
    try:
        if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            return 0
        n_messages: int = connection.execute("SELECT count(*) FROM message WHERE deleted_s IS NULL").fetchone()[0]
        return n_messages
    except (sqlite3.Error, UnicodeDecodeError):
        return 0
    finally:
        connection.close()
