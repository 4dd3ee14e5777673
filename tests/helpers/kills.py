"""What a killed process said, and the check that its database keeps all of that. Lines as in `journal_child`."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from app.store.chat_store import ChatStore
from app.store.rows import MessageRow
from app.store.writer import JOURNAL_TOKENS

ROOT = Path(__file__).parents[2]
TOKEN_LENGTH = 9
"""Characters of a token of the children, about."""


def killed_run(module: str, argument: Path, after_s: float) -> tuple[list[list[str]], float]:
    """Starts the child, kills it `after_s` after its first line; its complete lines and the time of the kill (monotonic)."""
    child = subprocess.Popen([sys.executable, "-m", module, str(argument)], stdout=subprocess.PIPE, cwd=ROOT, text=True)
    assert child.stdout is not None
    first = child.stdout.readline()
    time.sleep(after_s)
    killed = time.monotonic()
    child.kill()
    rest = child.stdout.read()
    child.stdout.close()
    child.wait(10)
    lines = (first + rest).split("\n")[:-1]
    return [line.split() for line in lines], killed


def check_run(path: Path, lines: list[list[str]], killed: float) -> float:
    """Asserts that what was acknowledged is there; the age in seconds of the newest text that should be on disk (0: at most
    JOURNAL_TOKENS tokens are missing)."""
    store = ChatStore(path)
    try:
        assert store.notice == ""
        rows: dict[int, MessageRow] = {}
        for chat in store.chats():
            rows |= {m.id: m for m in store.messages(chat.id)}
        lost_s = 0.0
        for word, message_id, *rest in lines:
            row = rows[int(message_id)]
            if word == "D":
                assert (row.status, len(row.text)) == ("done", int(rest[0]))
            elif word == "T" and row.status == "interrupted" and int(rest[0]) - len(row.text) > JOURNAL_TOKENS * TOKEN_LENGTH:
                lost_s = max(lost_s, killed - float(rest[1]))
        assert all(row.status in ("done", "interrupted") for row in rows.values())
        said = {int(message_id) for _word, message_id, *_rest in lines}
        assert sum(row.status == "interrupted" for row in rows.values() if row.id in said) <= 1
    finally:
        store.close()
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
    return lost_s
