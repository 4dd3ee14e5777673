"""Daily copies, and a damaged database that is repaired from itself or from a copy, whichever holds more."""

from __future__ import annotations

import datetime
import random
import sqlite3
import threading
from pathlib import Path

import pytest

from app.store import chats
from app.store.backup import KEEP, back_up, backup_folder, backups, count_messages
from app.store.chat_store import ChatStore

DAY = datetime.date(2026, 3, 1)


def filled(path: Path, n: int, title: str = "chat") -> int:
    """Adds a chat of n messages."""
    store = ChatStore(path)

    def fill(db: sqlite3.Connection) -> int:
        chat = chats.add_chat(db, title)
        parent = None
        for i in range(n):
            role = "user" if i % 2 == 0 else "assistant"
            parent = chats.add_message(db, chat.id, parent, role, f"message {i} of {title} 中文 " * 20).id  # type: ignore[arg-type]
        return chat.id

    chat_id = store.change(fill).result(60)
    store.close()
    return chat_id


def damage(path: Path, share: float) -> None:
    """Overwrites the end of the file from `share` on with noise."""
    data = bytearray(path.read_bytes())
    start = int(len(data) * share)
    data[start:] = random.Random(3).randbytes(len(data) - start)
    path.write_bytes(data)


def test_one_copy_a_day_and_seven_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    filled(path, 4)
    made = [back_up(path, DAY + datetime.timedelta(days=i)) for i in range(10)]
    assert all(made)
    assert back_up(path, DAY + datetime.timedelta(days=9)) is None
    assert list(backups(path)) == made[: -KEEP - 1 : -1]
    assert count_messages(backups(path)[0]) == 4
    assert {file.suffix for file in backup_folder(path).iterdir()} == {".db"}


def test_an_empty_or_damaged_database_makes_no_copy_and_costs_none(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    ChatStore(path).close()
    assert back_up(path, DAY) is None
    filled(path, 50)
    assert back_up(path, DAY) is not None
    damage(path, 0.3)
    assert back_up(path, DAY + datetime.timedelta(days=1)) is None
    assert len(backups(path)) == 1
    assert count_messages(backups(path)[0]) == 50


def test_a_copy_is_made_while_the_store_writes(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    chat_id = filled(path, 10)
    store = ChatStore(path)
    done = threading.Event()
    made: list[Path | None] = []

    def copy() -> None:
        made.append(back_up(path, DAY))
        done.set()

    thread = threading.Thread(target=copy)
    thread.start()
    n_added = 0
    while not done.is_set() or n_added == 0:
        store.change(lambda db: chats.add_message(db, chat_id, None, "user", "during")).result(60)
        n_added += 1
    thread.join()
    store.close()
    assert made[0] is not None
    assert count_messages(made[0]) >= 10
    assert count_messages(path) == 10 + n_added


@pytest.mark.expects_warnings
def test_the_readable_part_of_a_damaged_database_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    for number in range(6):
        filled(path, 60, f"chat {number}")
    damage(path, 0.7)
    store = ChatStore(path)
    assert "could be read" in store.notice
    kept = [row for chat in store.chats() for row in store.messages(chat.id)]
    assert len(kept) >= 40
    assert all(row.text.startswith("message ") for row in kept[:20])
    assert store.search("中文")
    assert store.change(lambda db: chats.add_chat(db, "goes on")).result(60).title == "goes on"
    store.close()
    again = ChatStore(path)
    assert again.notice == ""
    again.close()


@pytest.mark.expects_warnings
def test_a_backup_that_holds_more_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    chat_id = filled(path, 200)
    assert back_up(path, DAY) is not None
    damage(path, 0.02)
    store = ChatStore(path)
    assert "backup of 2026-03-01" in store.notice
    assert len(store.messages(chat_id)) == 200
    store.close()
    assert len(list(tmp_path.glob("chats.damaged-*.db"))) == 1
    assert not list(tmp_path.glob("*rebuilt*")) and not list(tmp_path.glob("*copy*"))


@pytest.mark.expects_warnings
def test_a_damaged_backup_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    filled(path, 100)
    assert back_up(path, DAY) is not None
    newest = back_up(path, DAY + datetime.timedelta(days=1))
    assert newest is not None
    damage(newest, 0.3)
    damage(path, 0.02)
    store = ChatStore(path)
    assert "backup of 2026-03-01" in store.notice
    store.close()


@pytest.mark.expects_warnings
@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_broken_the_store_opens_and_what_it_shows_can_be_read(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "chats.db"
    filled(path, 40)
    chance = random.Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 20, 200))):
        data[chance.randrange(len(data))] = chance.randrange(256)
    path.write_bytes(data)
    store = ChatStore(path)
    for chat in store.chats():
        store.messages(chat.id)
    assert store.change(lambda db: chats.add_chat(db, "new")).result(60).title == "new"
    store.close()
