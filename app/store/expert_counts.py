"""How often experts were passed for each answer, as packed bytes; model: the path of its file. Functions on a connection, as in
`chats`: the writer runs those that change."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

RECENT = 64
"""Answers that tell how a model is used in general; each takes some 13 KB and a third of a millisecond to unpack."""
_THERE = (
    "FROM message_experts AS e JOIN message AS m ON m.id = e.message_id JOIN chat AS c ON c.id = m.chat_id"
    " WHERE e.model = ? AND m.deleted_s IS NULL AND c.deleted_s IS NULL"
)


@dataclass(frozen=True, slots=True)
class CountedChat:
    """A chat in which experts were counted."""

    id: int
    title: str


def keep_counts(db: sqlite3.Connection, message_id: int, model: str, data: bytes) -> None:
    """Beside what was kept of the message before; nothing for one that is gone for good."""
    found = "INSERT INTO message_experts (message_id, model, data) SELECT id, ?, ? FROM message WHERE id = ?"
    db.execute(found, (model, data, message_id))


def of_model(db: sqlite3.Connection, model: str) -> tuple[bytes, ...]:
    """Of its newest answers, RECENT at most."""
    return _data(db.execute(f"SELECT e.data {_THERE} ORDER BY e.id DESC LIMIT {RECENT}", (model,)))


def of_chat(db: sqlite3.Connection, model: str, chat_id: int) -> tuple[bytes, ...]:
    """Of all answers in a chat, on whatever branch."""
    return _data(db.execute(f"SELECT e.data {_THERE} AND m.chat_id = ?", (model, chat_id)))


def of_message(db: sqlite3.Connection, model: str, message_id: int) -> tuple[bytes, ...]:
    """Of one answer."""
    return _data(db.execute(f"SELECT e.data {_THERE} AND m.id = ?", (model, message_id)))


def newest_message(db: sqlite3.Connection, model: str) -> int | None:
    """The answer of which experts were counted last."""
    row = db.execute(f"SELECT e.message_id {_THERE} ORDER BY e.id DESC LIMIT 1", (model,)).fetchone()
    return None if row is None else int(row[0])


def counted_chats(db: sqlite3.Connection, model: str, most: int) -> tuple[CountedChat, ...]:
    """Chats in which experts of the model were counted, the newest first."""
    rows = db.execute(f"SELECT c.id, c.title {_THERE} GROUP BY c.id ORDER BY c.updated_s DESC, c.id DESC LIMIT ?", (model, most))
    return tuple(CountedChat(int(row[0]), str(row[1])) for row in rows)


def _data(rows: sqlite3.Cursor) -> tuple[bytes, ...]:
    return tuple(bytes(row[0]) for row in rows if isinstance(row[0], bytes))
