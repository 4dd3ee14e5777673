"""kill -9 while answers stream: nothing acknowledged is lost, the partial answer is at most 250 ms old and marked interrupted."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.store.chat_store import ChatStore
from app.store.rows import MessageRow
from app.store.writer import JOURNAL_TOKENS

ROOT = Path(__file__).parents[3]
TOKEN_LENGTH = 9


def killed_run(path: Path, after_s: float) -> tuple[list[list[str]], float]:
    """Starts the child, kills it `after_s` after its first line; its complete lines and the time of the kill (monotonic)."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.helpers.journal_child", str(path)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
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
    """Asserts that what was acknowledged is there; the age in seconds of the newest text that should be on disk (0: at
    most JOURNAL_TOKENS tokens are missing)."""
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
        assert sum(row.status == "interrupted" for row in rows.values()) <= 1
    finally:
        store.close()
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
    return lost_s


def kill_many(folder: Path, n: int) -> None:
    chance = random.Random(os.getpid())
    ages = []
    n_acknowledged = 0
    for number in range(n):
        path = folder / f"{number}.db"
        lines, killed = killed_run(path, chance.uniform(0.02, 0.5))
        n_acknowledged += sum(line[0] in "UD" for line in lines)
        ages.append(check_run(path, lines, killed))
    assert n_acknowledged >= n
    # A write that the machine itself delays (other processes at the disk) is not the journal's; one in ten may be late.
    late = sum(age > 0.25 for age in ages)
    assert late <= n // 10, sorted(ages)


def test_twenty_kills_lose_nothing(tmp_path: Path) -> None:
    kill_many(tmp_path, 20)


@pytest.mark.slow
def test_a_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    kill_many(tmp_path, 100)
