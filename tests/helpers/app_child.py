"""The whole application, offscreen, over a scripted engine that streams 200 tokens a second; it asks one question after another
until it is killed. Prints what `journal_child` prints."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from PySide6.QtWidgets import QApplication

from app import event_loop
from app.main import build, make_application
from app.ops.chat_ops import Turn
from app.paths import find_paths
from app.store.rows import MessageRow
from tests.helpers.fake_engine import FakeEngine, Prefill, Tokens
from tests.helpers.journal_child import say

TOKENS = 100
TOK_S = 200.0


async def life(app: QApplication) -> int:
    """Never ends by itself."""
    paths = find_paths()
    paths.ensure()
    answer = (Prefill(), Tokens(tuple(f"token {n} " for n in range(1, TOKENS + 1)), TOK_S))
    running = build(app, paths, lambda: FakeEngine(answer=answer))
    chats, store, controller = running.parts.chats, running.parts.store, running.window.controller
    lengths: dict[int, int] = {}

    def begun(turn: Turn) -> None:
        if turn.question is not None:
            say("U", turn.question.id)
        say("A", turn.answer.id)

    def added(message_id: int, text: str) -> None:
        lengths[message_id] = lengths.get(message_id, 0) + len(text)
        say("T", message_id, lengths[message_id], time.monotonic())

    def updated(row: MessageRow) -> None:
        if row.status == "done":
            asyncio.get_running_loop().call_soon(lambda: controller.send("And then?"))

    chats.turn_begun.connect(begun)
    chats.text_added.connect(added)
    chats.updated.connect(updated)
    running.window.show()
    running.window.load("/scripted.gguf")
    controller.send("What is first?")
    told: set[int] = set()
    while True:
        await asyncio.sleep(0.01)
        unwritten = store._writer.unwritten()
        for message_id, length in lengths.items():
            if message_id not in told and message_id not in unwritten and store.message(message_id).status == "done":
                told.add(message_id)
                say("D", message_id, length)


def main() -> None:
    """Runs until killed."""
    app = make_application()
    event_loop.run(app, life(app))


if __name__ == "__main__":
    os.environ["LAYERDECK_HOME"] = str(Path(sys.argv[1]))
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    main()
