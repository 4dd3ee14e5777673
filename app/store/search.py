"""Full-text search over titles and messages: FTS5 with each Han character as a word of its own."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass

_HAN = re.compile(r"([\u2e80-\u2fdf\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003134f])")


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One chat that matches. message_id: its newest matching message, None when only the title matches. snippet: plain text."""

    chat_id: int
    message_id: int | None
    snippet: str


def indexed(text: str) -> str:
    """The text as the index holds it. unicode61 takes a run of Han characters for one word; with spaces each can be found."""
    return _HAN.sub(r" \1 ", text)


def match_expression(query: str) -> str:
    """The FTS5 expression for what was typed: every word must occur, the last one may be unfinished. "" finds nothing."""
    phrases = [" ".join(indexed(word.replace('"', " ").replace("\0", " ")).split()) for word in query.split()]
    phrases = [phrase for phrase in phrases if any(c.isalnum() for c in phrase)]
    return " ".join(f'"{phrase}"' for phrase in phrases) + ("*" if phrases else "")


def index_message(connection: sqlite3.Connection, message_id: int, text: str) -> None:
    """Puts a message into the index, replacing what was there."""
    connection.execute("DELETE FROM message_search WHERE rowid = ?", (message_id,))
    connection.execute("INSERT INTO message_search (rowid, text) VALUES (?, ?)", (message_id, indexed(text)))


def index_title(connection: sqlite3.Connection, chat_id: int, title: str) -> None:
    """Puts the title of a chat into the index, replacing what was there."""
    connection.execute("DELETE FROM title_search WHERE rowid = ?", (chat_id,))
    connection.execute("INSERT INTO title_search (rowid, text) VALUES (?, ?)", (chat_id, indexed(title)))


def search(connection: sqlite3.Connection, query: str, limit: int = 200) -> tuple[SearchHit, ...]:
    """Chats that match, newest first."""
    expression = match_expression(query)
    if not expression:
        return ()
    hits: dict[int, SearchHit] = {}
    in_messages = """
        SELECT message.chat_id, message.id, message.text FROM message_search
        JOIN message ON message.id = message_search.rowid
        JOIN chat ON chat.id = message.chat_id
        WHERE message_search MATCH ? AND message.deleted_s IS NULL AND chat.deleted_s IS NULL
        ORDER BY chat.updated_s DESC, message.id DESC LIMIT ?"""
    for chat_id, message_id, text in connection.execute(in_messages, (expression, limit * 8)):
        hits.setdefault(chat_id, SearchHit(chat_id, message_id, _snippet(text, query)))
    in_titles = """
        SELECT chat.id, chat.title FROM title_search JOIN chat ON chat.id = title_search.rowid
        WHERE title_search MATCH ? AND chat.deleted_s IS NULL ORDER BY chat.updated_s DESC LIMIT ?"""
    for chat_id, title in connection.execute(in_titles, (expression, limit)):
        hits.setdefault(chat_id, SearchHit(chat_id, None, title))
    order = {row[0]: row[1] for row in connection.execute("SELECT id, updated_s FROM chat WHERE deleted_s IS NULL")}
    return tuple(sorted(hits.values(), key=lambda hit: -order[hit.chat_id])[:limit])


def _snippet(text: str, query: str, around: int = 40) -> str:
    words = query.split()
    at = next((i for word in words if (i := text.lower().find(word.lower())) >= 0), 0)
    start = max(0, at - around)
    cut = " ".join(text[start : at + around * 2].split())
    return ("…" if start else "") + cut
