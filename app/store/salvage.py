"""What can still be read of a damaged database, copied into a new one."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from app.store.rows import Role, Status
from app.store.search import index_message, index_title

Row = Mapping[str, Any]
LATEST_S = 4e9
"""Times beyond this (the year 2096) are damage."""


def salvage(damaged: Path, target: sqlite3.Connection) -> int:
    """Copies chats, messages and presets into the empty, migrated `target`; how many messages that are not deleted it then holds.

    `damaged` may be changed: give a copy.
    """
    try:
        source = sqlite3.connect(damaged)
    except sqlite3.Error:
        return 0
    source.text_factory = lambda raw: raw.decode("utf-8", "replace")
    try:
        found = {table: _rows(source, table, _columns(target, table)) for table in _SOUND}
    finally:
        source.close()
    target.execute("PRAGMA foreign_keys = OFF")
    target.execute("BEGIN IMMEDIATE")
    for table, is_sound in _SOUND.items():
        for row in found[table]:
            if is_sound(row):
                names = ", ".join(row)
                places = ", ".join("?" * len(row))
                target.execute(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({places})", tuple(row.values()))
    _mend(target)
    _index(target)
    target.execute("COMMIT")
    target.execute("PRAGMA foreign_keys = ON")
    n_messages: int = target.execute("SELECT count(*) FROM message WHERE deleted_s IS NULL").fetchone()[0]
    return n_messages


def _columns(db: sqlite3.Connection, table: str) -> tuple[str, ...]:
    return tuple(row[1] for row in db.execute(f"PRAGMA table_info({table})"))


def _rows(source: sqlite3.Connection, table: str, wanted: tuple[str, ...]) -> list[Row]:
    """Rows from the first up to the damage, then from the last down to it."""
    found: dict[Any, Row] = {}
    for order in ("ASC", "DESC"):
        try:
            columns = [name for name in _columns(source, table) if name in wanted]
            for values in source.execute(f"SELECT {', '.join(columns)} FROM {table} NOT INDEXED ORDER BY id {order}"):
                row = dict(zip(columns, values, strict=True))
                if row.get("id") in found:
                    break
                found[row.get("id")] = row
        except (sqlite3.Error, UnicodeDecodeError):
            continue
    return list(found.values())


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < LATEST_S


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, int | float)


def _is_chat(row: Row) -> bool:
    texts = (row.get(name, "") for name in ("title", "system_prompt", "sampling_json", "model_path"))
    return (
        isinstance(row.get("id"), int)
        and all(isinstance(text, str) for text in texts)
        and _is_time(row.get("created_s"))
        and _is_time(row.get("updated_s"))
    )


def _is_message(row: Row) -> bool:
    numbers = (
        row.get(name) for name in ("n_tokens", "n_prompt", "decode_tok_s", "prefill_tok_s", "ttft_s", "parent_id", "deleted_s")
    )
    return (
        isinstance(row.get("id"), int)
        and isinstance(row.get("chat_id"), int)
        and isinstance(row.get("text"), str)
        and row.get("role") in get_args(Role)
        and row.get("status") in get_args(Status)
        and _is_time(row.get("created_s"))
        and all(map(_is_number, numbers))
    )


def _is_preset(row: Row) -> bool:
    texts = (row.get(name) for name in ("model", "machine", "name", "text"))
    return isinstance(row.get("id"), int) and all(isinstance(text, str) for text in texts) and _is_time(row.get("updated_s"))


_SOUND: Mapping[str, Callable[[Row], bool]] = {"chat": _is_chat, "message": _is_message, "placement_preset": _is_preset}
"""What is copied, and which rows of it are no damage."""


def _mend(db: sqlite3.Connection) -> None:
    """Messages without their chat get one; those without their parent hang on the message before them."""
    now = time.time()
    db.execute(
        "INSERT INTO chat (id, title, created_s, updated_s) SELECT DISTINCT chat_id, 'Recovered chat', ?, ? FROM message"
        " WHERE chat_id NOT IN (SELECT id FROM chat)",
        (now, now),
    )
    db.execute(
        "UPDATE message SET parent_id = (SELECT max(m.id) FROM message m WHERE m.chat_id = message.chat_id AND m.id < message.id)"
        " WHERE parent_id IS NOT NULL AND (parent_id >= id OR parent_id NOT IN (SELECT id FROM message))"
    )
    db.execute(
        "UPDATE chat SET leaf_id = (SELECT max(id) FROM message WHERE chat_id = chat.id AND deleted_s IS NULL)"
        " WHERE leaf_id IS NULL OR leaf_id NOT IN (SELECT id FROM message)"
    )


def _index(db: sqlite3.Connection) -> None:
    for chat_id, title in db.execute("SELECT id, title FROM chat").fetchall():
        index_title(db, chat_id, title)
    for message_id, text in db.execute("SELECT id, text FROM message").fetchall():
        index_message(db, message_id, text)
