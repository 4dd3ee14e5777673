"""Writing a message: keys, large pastes, what the button does."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.chat.composer import Composer
from app.chat.composer_edit import ComposerEdit, is_large

pytestmark = pytest.mark.usefixtures("themed")


@pytest.fixture
def composer(qtbot: QtBot, themed: None) -> Iterator[Composer]:
    widget = Composer()
    qtbot.addWidget(widget)
    widget.resize(836, 128)
    widget.show()
    yield widget


def edit(composer: Composer) -> ComposerEdit:
    return composer._edit


def test_enter_sends_and_clears(composer: Composer, qtbot: QtBot) -> None:
    qtbot.keyClicks(edit(composer), "hello")
    with qtbot.waitSignal(composer.send_requested) as blocker:
        qtbot.keyClick(edit(composer), Qt.Key.Key_Return)
    assert blocker.args == ["hello"]
    assert composer.text() == ""


def test_shift_enter_is_a_new_line_and_the_box_grows(composer: Composer, qtbot: QtBot) -> None:
    before = composer.height()
    with qtbot.assertNotEmitted(composer.send_requested):
        qtbot.keyClicks(edit(composer), "a")
        for _ in range(3):
            qtbot.keyClick(edit(composer), Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert composer.text() == "a\n\n\n"
    grown = composer.height()
    assert grown > before
    composer.set_text("x\n" * 50)
    assert composer.height() < before + 11 * 20
    composer.set_text("")
    assert composer.height() == before


def test_control_enter_keeps_the_draft(composer: Composer, qtbot: QtBot) -> None:
    composer.set_text("draft")
    with qtbot.waitSignal(composer.send_requested):
        qtbot.keyClick(edit(composer), Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert composer.text() == "draft"


def test_blank_text_is_not_sent(composer: Composer, qtbot: QtBot) -> None:
    composer.set_text("  \n ")
    with qtbot.assertNotEmitted(composer.send_requested):
        qtbot.keyClick(edit(composer), Qt.Key.Key_Return)


def test_enter_during_composition_does_not_send(composer: Composer, qtbot: QtBot) -> None:
    composer.set_text("ni")
    QApplication.sendEvent(edit(composer), QInputMethodEvent("hao", []))
    with qtbot.assertNotEmitted(composer.send_requested):
        qtbot.keyClick(edit(composer), Qt.Key.Key_Return)


def test_up_in_an_empty_box_edits_the_last_message(composer: Composer, qtbot: QtBot) -> None:
    with qtbot.waitSignal(composer.edit_last_requested):
        qtbot.keyClick(edit(composer), Qt.Key.Key_Up)
    composer.set_text("x")
    with qtbot.assertNotEmitted(composer.edit_last_requested):
        qtbot.keyClick(edit(composer), Qt.Key.Key_Up)


def test_busy_stops_by_button_and_escape_and_does_not_send(composer: Composer, qtbot: QtBot) -> None:
    composer.set_state("busy")
    composer.set_text("later")
    assert composer._button.text() == "Stop"
    with qtbot.assertNotEmitted(composer.send_requested):
        qtbot.keyClick(edit(composer), Qt.Key.Key_Return)
    with qtbot.waitSignal(composer.stop_requested):
        composer._button.click()
    with qtbot.waitSignal(composer.stop_requested):
        qtbot.keyClick(edit(composer), Qt.Key.Key_Escape)
    composer.set_state("idle")
    assert (composer._button.text(), composer.text()) == ("Send", "later")


@pytest.mark.parametrize("text", ["line of a log file\n" * 270_000, "x" * 5_000_000], ids=["lines", "one line"])
def test_five_megabytes_pasted_become_a_chip_without_delay(composer: Composer, qtbot: QtBot, text: str) -> None:
    data = QMimeData()
    data.setText(text)
    best = 1e9
    for _ in range(3):
        composer.set_text("")
        start = time.thread_time()
        edit(composer).insertFromMimeData(data)
        QApplication.processEvents()
        best = min(best, time.thread_time() - start)
    assert best <= 0.1
    assert edit(composer).toPlainText() == ""
    assert len(composer._attachments) == 1
    qtbot.keyClicks(edit(composer), "see:")
    assert composer.text() == "see:\n\n" + text
    composer._attachments[0]._close.click()
    assert composer.text() == "see:"


def test_what_is_large() -> None:
    assert not is_large("word " * 3_000)
    assert not is_large("a line\n" * 8_000)
    assert is_large("x" * 30_000)
    assert is_large("中" * 30_000)
    assert is_large("word " * 20_000)


def test_small_paste_is_plain_text(composer: Composer) -> None:
    data = QMimeData()
    data.setHtml("<b>bold</b>")
    data.setText("bold")
    edit(composer).insertFromMimeData(data)
    assert composer.text() == "bold"


def test_chips_ask_and_show(composer: Composer, qtbot: QtBot) -> None:
    composer.set_preset_label("Precise · 0.4")
    composer.set_system_prompt("Be brief.")
    assert composer._system.text() == "System prompt"
    with qtbot.waitSignals([composer.sampling_requested, composer.system_prompt_requested]):
        composer._sampling.click()
        composer._system.click()
