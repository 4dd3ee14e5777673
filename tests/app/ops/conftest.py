"""The operations over a real store and a scripted engine."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.bridge.engine_bridge import EngineBridge
from app.bridge.ui_thread import UiThread
from app.ops.chat_ops import ChatOps, Trouble, Turn, Undo
from app.ops.context_ops import ContextUse
from app.ops.model_ops import ModelOps
from app.ops.monitor_ops import MonitorOps
from app.settings.store import SettingsStore
from app.store.chat_store import ChatStore
from app.store.rows import MessageRow
from tests.helpers.fake_engine import FakeEngine


@dataclass
class Bench:
    """Everything below the window, and what it told."""

    qtbot: QtBot
    engine: FakeEngine
    bridge: EngineBridge
    store: ChatStore
    settings: SettingsStore
    chats: ChatOps
    models: ModelOps
    turns: list[Turn]
    rows: list[MessageRow]
    undos: list[Undo]
    troubles: list[Trouble]
    contexts: list[ContextUse]
    monitors: MonitorOps
    notices: list[str]

    def load(self, path: str = "/m.gguf") -> None:
        """Loads a model and waits for it."""
        self.models.load(path)
        self.qtbot.waitUntil(lambda: self.bridge.state.kind in ("ready", "error"))

    def ask(self, text: str, chat_id: int | None = None, wait: bool = True) -> Turn:
        """Sends a question; waits for the end of the answer."""
        n_turns = len(self.turns)
        assert self.chats.send(chat_id, text)
        self.qtbot.waitUntil(lambda: len(self.turns) > n_turns)
        if wait:
            self.settle()
        return self.turns[-1]

    def settle(self) -> None:
        """Waits until nothing is being answered."""
        self.qtbot.waitUntil(lambda: not self.chats.streaming_chats() and not self.chats._starting)

    def shown(self, chat_id: int) -> list[tuple[str, str, str]]:
        """What a chat shows: role, text, status."""
        return [(row.role, row.text, row.status) for row in self.store.messages(chat_id)]


@pytest.fixture
def bench(qtbot: QtBot, tmp_path: Path) -> Iterator[Bench]:
    engine = FakeEngine()
    bridge = EngineBridge(engine)
    store = ChatStore(tmp_path / "chats.db")
    settings = SettingsStore(tmp_path / "settings.toml")
    ui = UiThread()
    worker = ThreadPoolExecutor(1)
    chats = ChatOps(store, bridge, settings, ui)
    models = ModelOps(bridge, settings, ui, worker)
    monitors = MonitorOps(bridge, settings, ui, tmp_path / "recordings", kept=store.telemetry)
    made = Bench(qtbot, engine, bridge, store, settings, chats, models, [], [], [], [], [], monitors, [])
    monitors.notice.connect(made.notices.append)
    chats.turn_begun.connect(made.turns.append)
    chats.updated.connect(made.rows.append)
    chats.undoable.connect(made.undos.append)
    chats.troubled.connect(made.troubles.append)
    chats.context_used.connect(made.contexts.append)
    yield made
    monitors.close()
    ui.close()
    bridge.close()
    store.close()
    worker.shutdown()
