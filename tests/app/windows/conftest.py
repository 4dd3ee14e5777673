"""The whole window over a scripted engine, offscreen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.main import Running, build
from app.paths import find_paths
from app.windows.chat_controller import ChatController
from app.windows.main_window import MainWindow
from app.windows.parts import Parts
from tests.helpers.fake_engine import FakeEngine


@dataclass
class Stage:
    """The running application and the engine behind it."""

    qtbot: QtBot
    engine: FakeEngine
    running: Running

    @property
    def window(self) -> MainWindow:
        """The window."""
        return self.running.window

    @property
    def parts(self) -> Parts:
        """What stands below it."""
        return self.running.parts

    @property
    def controller(self) -> ChatController:
        """The controller of the chat page."""
        return self.window.controller

    def load(self, path: str = "/m.gguf") -> None:
        """Loads a model and waits for the end of it."""
        self.window.load(path)
        self.qtbot.waitUntil(lambda: self.parts.bridge.state.kind in ("ready", "error"))

    def send(self, text: str, wait: bool = True) -> None:
        """Writes a message in the composer and sends it."""
        self.window.page.composer.send_requested.emit(text)
        if wait:
            self.settle()

    def settle(self) -> None:
        """Waits until nothing is being answered."""
        chats = self.parts.chats
        self.qtbot.waitUntil(lambda: not chats.streaming_chats() and not chats._starting)

    def shown(self) -> list[tuple[str, str, str]]:
        """The messages of the shown chat: role, text, status."""
        chat_id = self.controller.chat_id
        assert chat_id is not None
        return [(row.role, row.text, row.status) for row in self.parts.store.messages(chat_id)]


@pytest.fixture
def stage(qtbot: QtBot, qapp: QApplication, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    # The hooks for unhandled exceptions stay those of the tests.
    monkeypatch.setattr("app.windows.crash_dialog.CrashReporter.install", lambda self: None)
    paths = find_paths()
    paths.ensure()
    engine = FakeEngine()
    running = build(qapp, paths, lambda: engine)
    running.window.resize(1440, 900)
    running.window.show()
    made = Stage(qtbot, engine, running)
    yield made
    running.shut_down()
    running.window.deleteLater()
