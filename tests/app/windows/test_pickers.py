"""The palette, the model picker, links and the crash dialog."""

from __future__ import annotations

import threading

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMessageBox, QWidget
from pytestqt.qtbot import QtBot

from app.bridge.ui_thread import UiThread
from app.errors import StoreError
from app.ops.model_files import ModelFile
from app.store.rows import ChatRow
from app.windows.crash_dialog import CrashReporter
from app.windows.links import allowed_url, ask_and_open
from app.windows.model_picker import open_model_picker
from app.windows.palette import open_palette
from app.windows.picker import Entry, matching


@pytest.fixture
def window(qtbot: QtBot) -> QWidget:
    made = QWidget()
    made.resize(1000, 700)
    qtbot.addWidget(made)
    made.show()
    return made


def chat(chat_id: int, title: str) -> ChatRow:
    return ChatRow(chat_id, title, 0, 0, None, "", "{}", "")


def test_matching_wants_every_word_and_prefers_beginnings() -> None:
    entries = [Entry(1, "Show the list"), Entry(2, "List of chats"), Entry(3, "Quit")]
    assert [entry.key for entry in matching("list", entries)] == [2, 1]
    assert [entry.key for entry in matching("LIST show", entries)] == [1]
    assert len(matching("", entries)) == 3


def test_palette_runs_actions_and_opens_chats_by_keyboard(qtbot: QtBot, window: QWidget) -> None:
    action = QAction("New chat", window)
    ran: list[object] = []
    action.triggered.connect(lambda: ran.append("new"))
    picker = open_palette(window, [action], [chat(5, "Newton's laws"), chat(6, "Other")], ran.append)
    qtbot.keyClicks(picker._edit, "new")
    assert [entry.title for entry in picker.shown_entries()] == ["New chat", "Newton's laws"]
    qtbot.keyClick(picker._edit, Qt.Key.Key_Down)
    qtbot.keyClick(picker._edit, Qt.Key.Key_Return)
    assert ran == [5]
    picker = open_palette(window, [action], [], ran.append)
    qtbot.keyClick(picker._edit, Qt.Key.Key_Return)
    assert ran == [5, "new"]


def test_escape_closes_and_nothing_matches_takes_nothing(qtbot: QtBot, window: QWidget) -> None:
    ran: list[object] = []
    picker = open_palette(window, [], [], ran.append)
    qtbot.keyClicks(picker._edit, "zzz")
    qtbot.keyClick(picker._edit, Qt.Key.Key_Return)
    qtbot.keyClick(picker._edit, Qt.Key.Key_Escape)
    assert ran == []


def test_model_picker_offers_models_and_other_ways(qtbot: QtBot, window: QWidget) -> None:
    models = [ModelFile("/m/a.gguf", "Alpha", "Q4_1", 98_000_000), ModelFile("/m/b.gguf", "Beta", "", 5)]
    loaded: list[str] = []
    picker = open_model_picker(window, models, "/m/b.gguf", loaded.append, loaded.append)
    assert [entry.icon for entry in picker.shown_entries()[:2]] == ["layers", "check"]
    assert picker.shown_entries()[0].detail == "Q4_1 · 98 MB"
    qtbot.keyClick(picker._edit, Qt.Key.Key_Return)
    picker = open_model_picker(window, models, "", loaded.append, loaded.append)
    qtbot.keyClicks(picker._edit, "gguf file")
    qtbot.keyClick(picker._edit, Qt.Key.Key_Return)
    assert loaded == ["/m/a.gguf", "open_model_file"]


@pytest.mark.parametrize(
    "link",
    [
        "file:///etc/passwd",
        "javascript:alert(1)",
        "/etc/passwd",
        "data:text/html,x",
        "smb://host/share",
        "http://",
        "https:",
        "",
        "ht tp://x",
        "x-man-page:ls",
        "vscode://file/etc",
    ],
)
def test_links_that_are_never_opened(link: str) -> None:
    assert allowed_url(link) is None


@pytest.mark.parametrize("link", ["https://example.org/a?b=c#d", "HTTP://example.org", "mailto:a@example.org"])
def test_links_that_may_be_opened(link: str) -> None:
    assert allowed_url(link) is not None


def test_a_link_is_shown_before_it_is_opened(qtbot: QtBot, window: QWidget, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("app.windows.links.QDesktopServices.openUrl", lambda url: opened.append(url.toString()))
    assert ask_and_open("file:///etc/passwd", window) is None
    box = ask_and_open("https://example.org/<b>x", window)
    assert box is not None
    assert box.informativeText() == "https://example.org/%3Cb%3Ex"
    box.button(QMessageBox.StandardButton.Cancel).click()
    assert opened == []
    box = ask_and_open("https://example.org/", window)
    assert box is not None
    next(button for button in box.buttons() if button.text() == "Open").click()
    assert opened == ["https://example.org/"]


@pytest.mark.expects_warnings
def test_unhandled_errors_of_any_thread_are_shown_once(qtbot: QtBot, window: QWidget) -> None:
    ui = UiThread()
    reporter = CrashReporter(ui)
    notices: list[str] = []
    reporter.set_window(window, notices.append)
    reporter.report(StoreError("the disk is full"))
    thread = threading.Thread(target=lambda: reporter.report(ValueError("first"), "worker"))
    thread.start()
    thread.join()
    reporter.report(KeyError("second"))
    reporter.report(None)
    qtbot.waitUntil(lambda: reporter._open is not None and "second" in reporter._open.details.toPlainText())
    assert reporter._open is not None
    assert "ValueError: first" in reporter._open.details.toPlainText()
    assert notices == ["the disk is full"]
    reporter._open.close()
    assert reporter._open is None
