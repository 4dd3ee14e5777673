"""The page as a whole: names for assistive technology, side panel, empty state, find, drop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import QAbstractScrollArea, QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.chat.chat_page import ChatPage
from app.chat.sampling_panel import SamplingPanel
from app.chat.system_prompt import SystemPromptDialog
from app.shots import script
from app.welcome.welcome_page import MachineSummary, ModelChoice, WelcomePage
from app.widgets.rail import Rail

pytestmark = [pytest.mark.usefixtures("themed"), pytest.mark.filterwarnings("ignore:path is deprecated")]


@pytest.fixture
def page(qtbot: QtBot, themed: None) -> Iterator[ChatPage]:
    widget = ChatPage()
    qtbot.addWidget(widget)
    widget.resize(1368, 900)
    widget.show()
    yield widget
    widget.shut_down()


def nameless(root: QWidget) -> list[str]:
    """Widgets that can take the keyboard but have no name."""
    found = []
    for widget in root.findChildren(QWidget):
        inner = isinstance(widget.parentWidget(), QAbstractScrollArea) or widget.objectName().startswith("qt_")
        if widget.focusPolicy() != Qt.FocusPolicy.NoFocus and not widget.accessibleName() and not inner:
            found.append(f"{type(widget).__name__} {widget.objectName()}")
    return found


def test_everything_that_takes_the_keyboard_has_a_name(page: ChatPage, qtbot: QtBot) -> None:
    page.transcript.set_messages((*script.ended_badly(), *script.long_answer()))
    page.set_conversation_shown(True)
    page.open_find()
    page.toast.show_message("Chat deleted", "Undo", lambda: None)
    page.trouble.show_notice("The card is full.", "err", "Make room", "Not now")
    for view in page.transcript._views.values():
        view._need_actions()
    assert nameless(page) == []


def test_the_other_windows_have_names_too(qtbot: QtBot) -> None:
    welcome = WelcomePage()
    welcome.set_machine(MachineSummary("CPU", 4, "AVX2", 1, 1, 1, "/"))
    welcome.set_models((ModelChoice("p", "n", "Q", 1, "d", True),))
    welcome.set_warning("The disk is slow.", "Show more")
    rail = Rail()
    rail.add_page("chat", "Chat", "message-square", "Ctrl+1")
    for widget in (welcome, rail, SamplingPanel(), SystemPromptDialog()):
        qtbot.addWidget(widget)
        assert nameless(widget) == []


def test_side_panel_gives_way_to_a_narrow_window(page: ChatPage) -> None:
    assert page.side_panel.isVisible()
    page.resize(1100, 900)
    QApplication.processEvents()
    assert not page.side_panel.isVisible()
    page.resize(1400, 900)
    QApplication.processEvents()
    assert page.side_panel.isVisible()
    page.toggle_side_panel()
    assert not page.side_panel.isVisible()


def test_example_fills_the_composer(page: ChatPage) -> None:
    page.empty.set_model_name("SmolLM2")
    page.empty._cards[0].click()
    assert page.composer.text() == page.empty._cards[0].prompt


def test_find_bar_counts_and_closes(page: ChatPage, qtbot: QtBot) -> None:
    page.transcript.set_messages(script.long_history(20))
    page.set_conversation_shown(True)
    page.open_find()
    qtbot.keyClicks(page._find._edit, "question")
    qtbot.waitUntil(lambda: page._find._count.text() == "10 of 10", timeout=2000)
    qtbot.keyClick(page._find._edit, Qt.Key.Key_Return)
    assert page._find._count.text() == "9 of 10"
    qtbot.keyClick(page._find._edit, Qt.Key.Key_Escape)
    assert not page._find.isVisible()


@pytest.mark.parametrize(("name", "taken"), [("/m/a.gguf", True), ("/m/a.txt", False), ("/", True)])
def test_a_dropped_model_file_or_folder_is_reported(page: ChatPage, qtbot: QtBot, name: str, taken: bool) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(name)])
    dropped: list[str] = []
    page.file_dropped.connect(dropped.append)
    none = Qt.KeyboardModifier.NoModifier
    event = QDropEvent(QPointF(5, 5), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, none)
    page.dropEvent(event)
    assert dropped == ([name] if taken else [])


def test_toast_runs_its_action_once(page: ChatPage) -> None:
    calls: list[int] = []
    page.toast.show_message("Chat deleted", "Undo", lambda: calls.append(1))
    page.toast._action.click()
    page.toast._action.click()
    assert calls == [1]
    assert not page.toast.isVisible()
