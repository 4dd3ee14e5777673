"""Opens the chats whatever state they are in: a damaged database is set aside, and what is left of it, or a backup, goes on."""

from __future__ import annotations

import shutil
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from app.log import logger
from app.store.backup import backups, count_messages
from app.store.db import DatabaseDamaged, connect, known, migrate, migrations, open_checked
from app.store.salvage import salvage

log = logger("store")


@dataclass(frozen=True, slots=True)
class Opened:
    """notice: a sentence for the user, empty when all is well."""

    connection: sqlite3.Connection
    notice: str = ""


def open_database(path: Path) -> Opened:
    """The writer's connection to the chats at `path`, made when missing and brought up to date.

    A damaged file is moved aside, which `notice` says. In its place comes what could be read of it, or the newest intact backup
    if that holds more messages. Raises KnownDbError otherwise.
    """
    try:
        return Opened(open_checked(path))
    except sqlite3.DatabaseError as error:
        ours = known(error, path)
        if not isinstance(ours, DatabaseDamaged):
            raise ours from error
    try:
        return _repaired(path)
    except (sqlite3.Error, OSError) as error:
        raise (
            known(error, path) if isinstance(error, sqlite3.Error) else DatabaseDamaged(f"{path}: {error.strerror}")
        ) from error


def _repaired(path: Path) -> Opened:
    """Builds the new database beside the damaged one before that is moved: killed in between, the next start does it again."""
    rebuilt = path.with_name(f"{path.stem}.rebuilt{path.suffix}")
    _remove(rebuilt)
    n_found = _rebuild(path, rebuilt)
    outcome = f"{n_found:,} messages could be read and were kept." if n_found else "A new one was begun."
    best = max(((count_messages(backup), backup) for backup in backups(path)[:2]), default=(0, path))
    if best[0] > n_found:
        _remove(rebuilt)
        shutil.copyfile(best[1], rebuilt)
        day = best[1].stem[-8:]
        outcome = f"The backup of {day[:4]}-{day[4:6]}-{day[6:]} with {best[0]:,} messages was put in its place."
    kept = quarantine(path)
    rebuilt.replace(path)
    log.error("database damaged, kept as %s; %s", kept.name, outcome)
    return Opened(open_checked(path), f"The chat database was damaged. It was kept as {kept}. {outcome}")


def _rebuild(path: Path, rebuilt: Path) -> int:
    """A database at `rebuilt` with what a copy of the damaged one gives; the messages in it."""
    copy = path.with_name(f"{path.stem}.copy{path.suffix}")
    target = connect(rebuilt)
    try:
        migrate(target, migrations(), rebuilt)
        for suffix in ("", "-wal"):
            source = path.with_name(path.name + suffix)
            if source.exists():
                shutil.copyfile(source, copy.with_name(copy.name + suffix))
        return salvage(copy, target)
    finally:
        target.close()
        _remove(copy)


def _remove(database: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)


def quarantine(path: Path) -> Path:
    """Moves the database and its log files aside; returns the new path of the database."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    kept = path.with_name(f"{path.stem}.damaged-{stamp}{path.suffix}")
    number = 1
    while kept.exists():
        number += 1
        kept = path.with_name(f"{path.stem}.damaged-{stamp}-{number}{path.suffix}")
    for suffix in ("-wal", "-shm", ""):
        source = path.with_name(path.name + suffix)
        if source.exists():
            source.replace(kept.with_name(kept.name + suffix))
    return kept
