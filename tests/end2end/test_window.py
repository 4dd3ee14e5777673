"""The window with the real engine and the included model: chat, stop, continue, regenerate, edit, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.main import Running, build
from app.ops.chat_ops import Turn
from app.paths import find_paths
from app.store.chat_store import ChatStore
from app.store.rows import MessageRow
from engine.api.values import SamplingParams
from tests.helpers.models import included_model

pytestmark = pytest.mark.skipif(included_model() is None, reason="the included model is not installed")

GREEDY = SamplingParams(temperature=0.0, max_tokens=24)


@pytest.fixture
def running(qtbot: QtBot, qapp: QApplication, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr("app.windows.crash_dialog.CrashReporter.install", lambda self: None)
    paths = find_paths()
    paths.ensure()
    made = build(qapp, paths)
    made.window.resize(1440, 900)
    made.window.show()
    yield made
    made.shut_down()
    made.window.deleteLater()


def settle(qtbot: QtBot, running: Running) -> None:
    chats = running.parts.chats
    qtbot.waitUntil(lambda: not chats.streaming_chats() and not chats._starting, timeout=30_000)


def shown(running: Running) -> tuple[MessageRow, ...]:
    chat_id = running.window.controller.chat_id
    assert chat_id is not None
    return running.parts.store.messages(chat_id)


def test_a_conversation_with_the_included_model(qtbot: QtBot, running: Running) -> None:
    parts, controller = running.parts, running.window.controller
    turns: list[Turn] = []
    parts.chats.turn_begun.connect(turns.append)
    running.window.load(str(included_model()))
    qtbot.waitUntil(lambda: parts.bridge.state.kind == "ready", timeout=30_000)

    controller.ask("What is the sea?", GREEDY)
    qtbot.waitUntil(lambda: len(turns) == 1)
    settle(qtbot, running)
    question, answer = shown(running)
    assert (answer.status, question.text) == ("done", "What is the sea?")
    assert answer.text
    assert answer.figures.n_tokens == 24
    assert answer.figures.decode_tok_s is not None

    controller.regenerate_last()
    qtbot.waitUntil(lambda: len(turns) == 2)
    settle(qtbot, running)
    again = shown(running)[-1]
    assert again.position == (1, 2)
    assert again.text == answer.text

    controller.options.set_sampling(SamplingParams(temperature=0.0, max_tokens=24))
    controller.send("And the sky?")
    qtbot.waitUntil(lambda: len(turns) == 3)
    settle(qtbot, running)
    assert [row.status for row in shown(running)] == ["done"] * 4

    controller.options.set_sampling(SamplingParams(temperature=0.0))
    controller.send("Count from one to one hundred, in words.")
    qtbot.waitUntil(lambda: len(turns) == 4)
    last = turns[-1].answer.id
    qtbot.waitUntil(lambda: len(parts.chats.shown(parts.store.message(last)).text) > 10, timeout=30_000)
    controller.stop()
    settle(qtbot, running)
    stopped = shown(running)[-1]
    assert stopped.status == "stopped"

    controller.options.set_sampling(SamplingParams(temperature=0.0, max_tokens=8))
    controller.options.flush()
    running.window.page.transcript.continue_requested.emit(last)
    qtbot.waitUntil(lambda: bool(parts.chats.streaming_chats()) or shown(running)[-1].status == "done", timeout=30_000)
    settle(qtbot, running)
    continued = shown(running)[-1]
    assert continued.status == "done"
    assert continued.text.startswith(stopped.text)
    assert len(continued.text) > len(stopped.text)

    kept = shown(running)
    running.shut_down()
    store = ChatStore(parts.paths.database)
    assert store.messages(kept[0].chat_id) == kept
    store.close()


def test_a_file_that_is_no_model_is_a_sentence_and_the_window_lives(qtbot: QtBot, running: Running) -> None:
    path = running.parts.paths.data / "broken.gguf"
    path.write_bytes(b"GGUF" + b"\xff" * 200)
    with qtbot.waitSignal(running.parts.models.failed, timeout=30_000) as failed:
        running.window.load(str(path))
    assert "broken.gguf" in failed.args[0]
    assert running.parts.bridge.state.kind == "error"
    running.window.load(str(included_model()))
    qtbot.waitUntil(lambda: running.parts.bridge.state.kind == "ready", timeout=30_000)
