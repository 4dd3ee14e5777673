"""Queries of the store: functions on a connection that return frozen rows.

The writer runs those that change, in one transaction each.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass, fields

from app.errors import StoreError
from app.store.rows import ChatRow, Figures, MessageRow, Role, Status
from app.store.search import index_message, index_title

_CHAT = "id, title, created_s, updated_s, leaf_id, system_prompt, sampling_json, model_path, seen_from"
_FIGURES = ", ".join(field.name for field in fields(Figures))
_MESSAGE = f"id, chat_id, parent_id, role, text, status, created_s, error, error_kind, {_FIGURES}"
NO_FIGURES = Figures()


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of an answer: written again and again while it streams, a last time when it ended."""

    message_id: int
    text: str
    status: Status
    figures: Figures = NO_FIGURES
    error: str = ""
    error_kind: str = ""


class NoSuchRow(StoreError):
    """A chat or message that is not there (any more)."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not there any more; it was deleted in the meantime.")


def _chat(row: tuple[object, ...]) -> ChatRow:
    return ChatRow(*row)  # type: ignore[arg-type]


def _message(row: tuple[object, ...], position: tuple[int, int]) -> MessageRow:
    figures = Figures(*row[9:])  # type: ignore[arg-type]
    message_id, chat_id, parent_id, role, text, status, created_s, error, kind = row[:9]
    return MessageRow(message_id, chat_id, parent_id, role, text, status, created_s, figures, error, position, kind)  # type: ignore[arg-type]


# --- reading -------------------------------------------------------------------------------------------------------------


def all_chats(db: sqlite3.Connection) -> tuple[ChatRow, ...]:
    """All chats, newest first."""
    rows = db.execute(f"SELECT {_CHAT} FROM chat WHERE deleted_s IS NULL ORDER BY updated_s DESC, id DESC")
    return tuple(_chat(row) for row in rows)


def chat(db: sqlite3.Connection, chat_id: int) -> ChatRow:
    """One chat. Raises NoSuchRow."""
    row = db.execute(f"SELECT {_CHAT} FROM chat WHERE id = ? AND deleted_s IS NULL", (chat_id,)).fetchone()
    if row is None:
        raise NoSuchRow(f"Chat {chat_id}")
    return _chat(row)


def branch(db: sqlite3.Connection, chat_id: int, leaf_id: int | None) -> tuple[MessageRow, ...]:
    """The messages from the first one to `leaf_id`, each with its position among its siblings."""
    if leaf_id is None:
        return ()
    parents: dict[int, int | None] = {}
    siblings: dict[int | None, list[int]] = {}
    links = "SELECT id, parent_id FROM message WHERE chat_id = ? AND deleted_s IS NULL ORDER BY id"
    for message_id, parent_id in db.execute(links, (chat_id,)):
        parents[message_id] = parent_id
        siblings.setdefault(parent_id, []).append(message_id)
    path: list[int] = []
    at: int | None = leaf_id
    while at is not None and at in parents:
        path.append(at)
        at = parents[at]
    path.reverse()
    texts = _messages_by_id(db, chat_id, path, all_of_chat=len(path) * 2 > len(parents))
    rows = []
    for message_id in path:
        family = siblings[parents[message_id]]
        rows.append(_message(texts[message_id], (family.index(message_id), len(family))))
    return tuple(rows)


def _messages_by_id(db: sqlite3.Connection, chat_id: int, ids: list[int], *, all_of_chat: bool) -> dict[int, tuple[object, ...]]:
    if all_of_chat:
        rows = db.execute(f"SELECT {_MESSAGE} FROM message WHERE chat_id = ? AND deleted_s IS NULL", (chat_id,))
        return {row[0]: row for row in rows}
    query = f"SELECT {_MESSAGE} FROM message WHERE id = ?"
    return {message_id: db.execute(query, (message_id,)).fetchone() for message_id in ids}


def message(db: sqlite3.Connection, message_id: int) -> MessageRow:
    """One message. Raises NoSuchRow."""
    row = db.execute(f"SELECT {_MESSAGE} FROM message WHERE id = ? AND deleted_s IS NULL", (message_id,)).fetchone()
    if row is None:
        raise NoSuchRow(f"Message {message_id}")
    family = _siblings(db, row[1], row[2])
    return _message(row, (family.index(message_id), len(family)))


def _siblings(db: sqlite3.Connection, chat_id: int, parent_id: int | None) -> list[int]:
    query = "SELECT id FROM message WHERE chat_id = ? AND parent_id IS ? AND deleted_s IS NULL ORDER BY id"
    return [row[0] for row in db.execute(query, (chat_id, parent_id))]


def _newest_leaf(db: sqlite3.Connection, chat_id: int, message_id: int) -> int:
    """The end of the branch that goes on from a message, taking the newest child each time."""
    leaf = message_id
    while children := _siblings(db, chat_id, leaf):
        leaf = children[-1]
    return leaf


# --- writing -------------------------------------------------------------------------------------------------------------


def add_chat(
    db: sqlite3.Connection, title: str, system_prompt: str = "", sampling_json: str = "{}", model_path: str = ""
) -> ChatRow:
    """A new, empty chat."""
    now = time.time()
    cursor = db.execute(
        "INSERT INTO chat (title, created_s, updated_s, system_prompt, sampling_json, model_path) VALUES (?, ?, ?, ?, ?, ?)",
        (title, now, now, system_prompt, sampling_json, model_path),
    )
    chat_id = cursor.lastrowid
    assert chat_id is not None
    index_title(db, chat_id, title)
    return chat(db, chat_id)


def add_message(
    db: sqlite3.Connection, chat_id: int, parent_id: int | None, role: Role, text: str, status: Status = "done"
) -> MessageRow:
    """A new message under parent_id; it becomes the leaf of the chat. Raises NoSuchRow for a chat or parent that is not there."""
    chat(db, chat_id)
    if parent_id is not None and message(db, parent_id).chat_id != chat_id:
        raise NoSuchRow(f"Message {parent_id} of chat {chat_id}")
    now = time.time()
    cursor = db.execute(
        "INSERT INTO message (chat_id, parent_id, role, text, status, created_s) VALUES (?, ?, ?, ?, ?, ?)",
        (chat_id, parent_id, role, text, status, now),
    )
    message_id = cursor.lastrowid
    assert message_id is not None
    if status != "streaming":
        index_message(db, message_id, text)
    db.execute("UPDATE chat SET leaf_id = ?, updated_s = ? WHERE id = ?", (message_id, now, chat_id))
    return message(db, message_id)


def write_answer(db: sqlite3.Connection, answer: Answer) -> None:
    """The text so far, or the whole answer once its status is no longer `streaming`."""
    values = [getattr(answer.figures, field.name) for field in fields(Figures)]
    db.execute(
        f"UPDATE message SET text = ?, status = ?, error = ?, error_kind = ?, ({_FIGURES}) = (?, ?, ?, ?, ?) WHERE id = ?",
        (answer.text, answer.status, answer.error, answer.error_kind, *values, answer.message_id),
    )
    if answer.status != "streaming":
        index_message(db, answer.message_id, answer.text)
        db.execute(
            "UPDATE chat SET updated_s = max(updated_s, ?) WHERE id = (SELECT chat_id FROM message WHERE id = ?)",
            (time.time(), answer.message_id),
        )


def interrupt_streaming(db: sqlite3.Connection) -> tuple[int, ...]:
    """Marks the answers that a crash left unfinished; their chats, the newest answer's last. Called before anything streams."""
    rows = db.execute("SELECT id, chat_id, text FROM message WHERE status = 'streaming' ORDER BY id").fetchall()
    for message_id, _chat_id, text in rows:
        db.execute("UPDATE message SET status = 'interrupted' WHERE id = ?", (message_id,))
        index_message(db, message_id, text)
    return tuple(chat_id for _id, chat_id, _text in rows)


def unfinished(db: sqlite3.Connection) -> int | None:
    """The newest chat, when the answer it ends in was interrupted."""
    row = db.execute(
        "SELECT chat.id, message.status FROM chat LEFT JOIN message ON message.id = chat.leaf_id"
        " WHERE chat.deleted_s IS NULL ORDER BY chat.updated_s DESC, chat.id DESC LIMIT 1"
    ).fetchone()
    return row[0] if row is not None and row[1] == "interrupted" else None


def switch_branch(db: sqlite3.Connection, message_id: int, step: int) -> ChatRow:
    """Shows the sibling `step` places away (kept within the ends) and what follows it."""
    row = message(db, message_id)
    family = _siblings(db, row.chat_id, row.parent_id)
    target = family[min(max(family.index(message_id) + step, 0), len(family) - 1)]
    return set_leaf(db, row.chat_id, _newest_leaf(db, row.chat_id, target))


def set_leaf(db: sqlite3.Connection, chat_id: int, leaf_id: int | None) -> ChatRow:
    """Shows the branch that ends in leaf_id."""
    db.execute("UPDATE chat SET leaf_id = ? WHERE id = ?", (leaf_id, chat_id))
    return chat(db, chat_id)


def rename(db: sqlite3.Connection, chat_id: int, title: str) -> ChatRow:
    """Gives a chat another title."""
    db.execute("UPDATE chat SET title = ? WHERE id = ?", (title, chat_id))
    index_title(db, chat_id, title)
    return chat(db, chat_id)


def set_system_prompt(db: sqlite3.Connection, chat_id: int, system_prompt: str) -> ChatRow:
    """Stores the system prompt of a chat."""
    db.execute("UPDATE chat SET system_prompt = ? WHERE id = ?", (system_prompt, chat_id))
    return chat(db, chat_id)


def set_sampling(db: sqlite3.Connection, chat_id: int, sampling_json: str) -> ChatRow:
    """Stores how a chat's sampling differs from the defaults."""
    db.execute("UPDATE chat SET sampling_json = ? WHERE id = ?", (sampling_json, chat_id))
    return chat(db, chat_id)


def set_seen_from(db: sqlite3.Connection, chat_id: int, message_id: int | None) -> ChatRow:
    """The model is given the chat from this message on; None: all of it."""
    db.execute("UPDATE chat SET seen_from = ? WHERE id = ?", (message_id, chat_id))
    return chat(db, chat_id)


def set_model(db: sqlite3.Connection, chat_id: int, model_path: str) -> None:
    """Remembers which model answered last."""
    db.execute("UPDATE chat SET model_path = ? WHERE id = ?", (model_path, chat_id))


def delete_chat(db: sqlite3.Connection, chat_id: int) -> ChatRow:
    """Hides a chat; `restore_chat` brings it back until `purge`. Raises NoSuchRow when it is hidden already."""
    row = chat(db, chat_id)
    db.execute("UPDATE chat SET deleted_s = ? WHERE id = ?", (time.time(), chat_id))
    return row


def restore_chat(db: sqlite3.Connection, chat_id: int) -> ChatRow:
    """Undoes delete_chat. Raises NoSuchRow after a purge."""
    db.execute("UPDATE chat SET deleted_s = NULL WHERE id = ?", (chat_id,))
    return chat(db, chat_id)


@dataclass(frozen=True, slots=True)
class Removed:
    """What delete_message hid, for its undo. leaf_id: the leaf of the chat before."""

    chat_id: int
    message_ids: tuple[int, ...]
    leaf_id: int | None


def delete_message(db: sqlite3.Connection, message_id: int) -> Removed:
    """Hides a message and all that follows it; a sibling, else the parent, is shown instead."""
    row = message(db, message_id)
    before = chat(db, row.chat_id).leaf_id
    doomed = [message_id]
    for at in doomed:
        doomed += _siblings(db, row.chat_id, at)
    now = time.time()
    db.executemany("UPDATE message SET deleted_s = ? WHERE id = ?", [(now, at) for at in doomed])
    if before in doomed:
        rest = _siblings(db, row.chat_id, row.parent_id)
        set_leaf(db, row.chat_id, _newest_leaf(db, row.chat_id, rest[-1]) if rest else row.parent_id)
    return Removed(row.chat_id, tuple(doomed), before)


def restore_messages(db: sqlite3.Connection, removed: Removed) -> ChatRow:
    """Undoes delete_message."""
    db.executemany("UPDATE message SET deleted_s = NULL WHERE id = ?", [(at,) for at in removed.message_ids])
    return set_leaf(db, removed.chat_id, removed.leaf_id)


def purge(db: sqlite3.Connection) -> None:
    """Removes for good what was deleted. Called when the store is opened: an undo does not outlive the run that deleted."""
    gone = "id FROM message WHERE deleted_s IS NOT NULL OR chat_id IN (SELECT id FROM chat WHERE deleted_s IS NOT NULL)"
    db.execute(f"DELETE FROM message_search WHERE rowid IN (SELECT {gone})")
    db.execute("DELETE FROM title_search WHERE rowid IN (SELECT id FROM chat WHERE deleted_s IS NOT NULL)")
    # Children go with their parents in one statement; the constraint would refuse a parent first.
    db.execute("PRAGMA defer_foreign_keys = ON")
    db.execute(f"DELETE FROM message WHERE id IN (SELECT {gone})")
    db.execute("DELETE FROM chat WHERE deleted_s IS NOT NULL")
