"""What is kept of the machine with a message, as packed bytes; it is purged with its message. Functions on a connection, as in
`chats`: the writer runs those that change."""

from __future__ import annotations

import sqlite3


def telemetry(db: sqlite3.Connection, message_id: int) -> bytes | None:
    """Of a message that is there; None where none was kept."""
    row = db.execute(
        "SELECT data FROM message_telemetry JOIN message ON message.id = message_id WHERE message_id = ? AND deleted_s IS NULL",
        (message_id,),
    ).fetchone()
    return bytes(row[0]) if row is not None and isinstance(row[0], bytes) else None


def keep_telemetry(db: sqlite3.Connection, message_id: int, data: bytes) -> None:
    """In the place of what was kept; nothing for a message that is gone for good."""
    db.execute(
        "INSERT INTO message_telemetry (message_id, data) SELECT id, ? FROM message WHERE id = ?"
        " ON CONFLICT (message_id) DO UPDATE SET data = excluded.data",
        (data, message_id),
    )
