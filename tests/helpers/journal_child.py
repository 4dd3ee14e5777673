"""A process that streams answers into a store until it is killed. Prints what it was told is saved, and what text existed when.

Lines: `U id` a question acknowledged; `A id` an answer begun; `T id length time` text that exists; `D id length` an answer saved.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from app.store import chats
from app.store.chat_store import ChatStore
from app.store.chats import Answer
from app.store.rows import Figures

TOKENS = 120
TOKEN_S = 0.002


def say(*words: object) -> None:
    """One line, at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main(path: Path) -> None:
    """Chats with itself for ever."""
    store = ChatStore(path)
    chat = store.change(lambda db: chats.add_chat(db, "kill me")).result(30).id
    parent: int | None = None
    while True:
        above = parent
        question = store.change(lambda db, p=above: chats.add_message(db, chat, p, "user", "question")).result(30)  # type: ignore[misc]
        say("U", question.id)
        q_id = question.id
        row = store.change(lambda db, p=q_id: chats.add_message(db, chat, p, "assistant", "", "streaming")).result(30)  # type: ignore[misc]
        say("A", row.id)
        text = ""
        for n in range(1, TOKENS + 1):
            text += f"token {n} "
            store.journal(Answer(row.id, text, "streaming", Figures(n_tokens=n)))
            say("T", row.id, len(text), time.monotonic())
            time.sleep(TOKEN_S)
        store.journal(Answer(row.id, text, "done", Figures(n_tokens=TOKENS)))
        while store._writer.unwritten():
            time.sleep(0.001)
        say("D", row.id, len(text))
        parent = row.id


if __name__ == "__main__":
    main(Path(sys.argv[1]))
