"""Counts of experts are kept with answers, found by message, chat and model, and go with what they belong to."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from app.store import chats, expert_counts
from app.store.chat_store import ChatStore
from app.store.db import migrate, migrations

MODEL, OTHER = "/models/a.gguf", "/models/b.gguf"


def test_they_are_found_by_message_chat_and_model(tmp_path: Path) -> None:
    store = ChatStore(tmp_path / "chats.db")
    ids = []
    for title in ("First", "Second"):
        chat = store.change(lambda db, title=title: chats.add_chat(db, title=title)).result()
        row = store.change(lambda db, chat=chat: chats.add_message(db, chat.id, None, "assistant", "text")).result()
        ids.append((chat.id, row.id))
    (one, first), (two, second) = ids
    kept = [(first, MODEL, b"1"), (first, MODEL, b"2"), (first, OTHER, b"3"), (second, MODEL, b"4"), (999, MODEL, b"5")]
    for message_id, model, data in kept:
        store.change(lambda db, m=message_id, model=model, data=data: expert_counts.keep_counts(db, m, model, data)).result()
    read = store.placement
    assert sorted(read(lambda db: expert_counts.of_model(db, MODEL))) == [b"1", b"2", b"4"]
    assert sorted(read(lambda db: expert_counts.of_chat(db, MODEL, one))) == [b"1", b"2"]
    assert read(lambda db: expert_counts.of_message(db, OTHER, first)) == (b"3",)
    assert read(lambda db: expert_counts.newest_message(db, MODEL)) == second
    assert {chat.title for chat in read(lambda db: expert_counts.counted_chats(db, MODEL, 5))} == {"First", "Second"}
    assert [chat.title for chat in read(lambda db: expert_counts.counted_chats(db, OTHER, 5))] == ["First"]
    store.change(lambda db: chats.delete_chat(db, two)).result()
    assert read(lambda db: expert_counts.newest_message(db, MODEL)) == first
    store.close()
    again = ChatStore(tmp_path / "chats.db")  # which removes what was deleted
    assert again.placement(lambda db: db.execute("SELECT count(*) FROM message_experts").fetchone()[0]) == 3
    again.close()


@pytest.mark.parametrize("version", range(1, 5))
def test_a_database_of_before_gets_the_table(tmp_path: Path, version: int) -> None:
    path = tmp_path / "old.db"
    db = sqlite3.connect(path, isolation_level=None)
    migrate(db, migrations()[:version], path)
    db.execute("INSERT INTO chat (title, created_s, updated_s) VALUES ('Old', 1, 1)")
    db.close()
    store = ChatStore(path)
    assert [chat.title for chat in store.chats()] == ["Old"]
    assert store.placement(lambda db: expert_counts.of_model(db, MODEL)) == ()
    store.close()
