"""The file of the store: newer, damaged, full, locked, read-only, and migrations killed half-way."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from app.errors import StoreError
from app.store import chats
from app.store.chat_store import ChatStore
from app.store.chats import Answer
from app.store.db import (
    DatabaseDamaged,
    DatabaseFull,
    DatabaseLocked,
    DatabaseNewer,
    DatabaseReadOnly,
    DbBug,
    KnownDbError,
    connect,
    known,
    migrate,
    migrations,
)
from app.store.opening import open_database


def filled(path: Path, n: int = 40) -> int:
    store = ChatStore(path)
    chat = store.change(lambda db: chats.add_chat(db, "t")).result(5).id

    def fill(db: sqlite3.Connection) -> None:
        for i in range(n):
            chats.add_message(db, chat, None, "user", f"text {i} " * 30)

    store.change(fill).result(5)
    store.close()
    return chat


def test_a_newer_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    filled(path)
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    before = path.read_bytes()
    with pytest.raises(DatabaseNewer, match="newer version"):
        ChatStore(path)
    assert path.read_bytes() == before


@pytest.mark.expects_warnings
def test_damaged_databases_are_set_aside_and_a_new_one_is_begun(tmp_path: Path) -> None:
    original = tmp_path / "original.db"
    filled(original)
    chance = random.Random(1)
    data = original.read_bytes()
    n_set_aside = 0
    for number in range(30):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / "chats.db"
        damaged = bytearray(data)
        if number % 3 == 0:
            damaged = damaged[: chance.randrange(1, len(damaged))]
        else:
            for _ in range(200):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        store = ChatStore(path)
        if store.notice:
            n_set_aside += 1
            assert bytes(damaged) in [kept.read_bytes() for kept in folder.glob("chats.damaged-*.db")]
            assert store.change(lambda db: chats.add_chat(db, "new")).result(5).title == "new"
        store.close()
    assert n_set_aside >= 20


@pytest.mark.expects_warnings
def test_a_text_file_in_the_place_of_the_database_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    path.write_text("this is no database, only a text that is long enough to be looked at" * 30)
    store = ChatStore(path)
    assert "damaged" in store.notice
    store.close()


def test_migration_killed_between_versions_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    db = connect(path)
    first = (*migrations(), "CREATE TABLE extra (x); INSERT INTO extra VALUES (1); SELECT no_such_function();")
    with pytest.raises(sqlite3.OperationalError):
        migrate(db, first, path)
    db.close()
    db = connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (len(migrations()),)
    assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'extra'").fetchone() == (0,)
    migrate(db, (*migrations(), "CREATE TABLE extra (x); INSERT INTO extra VALUES (1);"), path)
    assert db.execute("SELECT x FROM extra").fetchall() == [(1,)]
    assert db.execute("PRAGMA user_version").fetchone() == (len(migrations()) + 1,)
    db.close()


def test_writes_are_durable_by_setting(tmp_path: Path) -> None:
    db = open_database(tmp_path / "chats.db").connection
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,)
    db.close()


def test_a_full_disk_is_a_sentence_nothing_is_lost_and_it_recovers(tmp_path: Path) -> None:
    troubles: list[StoreError | None] = []
    path = tmp_path / "chats.db"
    chat = filled(path)
    store = ChatStore(path, troubles.append)
    answer = store.change(lambda db: chats.add_message(db, chat, None, "assistant", "", "streaming")).result(5)
    store._writer._db.execute(f"PRAGMA max_page_count = {store._writer._db.execute('PRAGMA page_count').fetchone()[0]}")
    error = store.change(lambda db: chats.add_message(db, chat, None, "user", "y" * 200_000)).exception(5)
    assert isinstance(error, DatabaseFull)
    assert "full" in str(error) and "try again" in str(error)
    store.journal(Answer(answer.id, "z" * 100_000, "done"))
    deadline = time.monotonic() + 60
    while not troubles and time.monotonic() < deadline:
        time.sleep(0.01)
    assert isinstance(troubles[0], DatabaseFull)
    assert store.message(answer.id).text == "z" * 100_000
    store._writer._db.execute("PRAGMA max_page_count = 1000000")
    while len(troubles) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert troubles == [troubles[0], None]
    store.close()
    again = ChatStore(path)
    assert again.message(answer.id).text == "z" * 100_000
    assert again.message(answer.id).status == "done"
    again.close()


def test_a_locked_database_is_waited_for_and_reading_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    chat = filled(path)
    troubles: list[StoreError | None] = []
    store = ChatStore(path, troubles.append)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    future = store.change(lambda db: chats.add_message(db, chat, None, "user", "queued"))
    assert not future.done()
    assert len(store.messages(chat)) == 1
    time.sleep(1.3)
    assert not future.done()
    other.execute("ROLLBACK")
    assert future.result(60).text == "queued"
    assert [type(trouble) for trouble in troubles] == [DatabaseLocked, type(None)]
    other.close()
    store.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write read-only files")
def test_a_read_only_database_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    filled(path)
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(KnownDbError, match="writable"):
            ChatStore(path)
    finally:
        tmp_path.chmod(0o755)


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DatabaseReadOnly, match="writable"):
        ChatStore(tmp_path / "missing" / "chats.db")


@pytest.mark.parametrize(
    ("code", "kind"),
    [(sqlite3.SQLITE_FULL, DatabaseFull), (sqlite3.SQLITE_CORRUPT, DatabaseDamaged), (sqlite3.SQLITE_CONSTRAINT, DbBug)],
)
def test_sqlite_codes_become_our_errors(code: int, kind: type[Exception]) -> None:
    error = sqlite3.DatabaseError("x")
    error.sqlite_errorcode = code | (3 << 8)
    assert type(known(error, "chats.db")) is kind


def test_close_writes_what_is_pending_and_is_idempotent(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    chat = filled(path)
    store = ChatStore(path)
    row = store.change(lambda db: chats.add_message(db, chat, None, "assistant", "", "streaming")).result(5)
    store.journal(Answer(row.id, "to the end", "stopped"))
    store.close()
    store.close()
    assert "store-writer" not in [thread.name for thread in threading.enumerate()]
    assert isinstance(store.change(lambda db: None).exception(1), StoreError)
    shutil.copy(path, tmp_path / "copy.db")
    again = ChatStore(tmp_path / "copy.db")
    assert (again.message(row.id).text, again.message(row.id).status) == ("to the end", "stopped")
    again.close()


def test_a_database_of_the_first_version_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    db = connect(path)
    migrate(db, migrations()[:1], path)
    db.execute("INSERT INTO chat (title, created_s, updated_s) VALUES ('old', 1.0, 1.0)")
    db.execute("INSERT INTO message (chat_id, role, text, status, created_s) VALUES (1, 'user', 'q', 'done', 1.0)")
    db.execute("UPDATE chat SET leaf_id = 1")
    db.close()
    store = ChatStore(path)
    assert (store.chat(1).title, store.chat(1).seen_from) == ("old", None)
    assert [(row.text, row.error_kind) for row in store.messages(1)] == [("q", "")]
    store.close()
