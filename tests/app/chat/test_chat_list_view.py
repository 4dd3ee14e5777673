"""The list of chats: open, rename in place, delete, search."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QStandardItem, QStandardItemModel
from pytestqt.qtbot import QtBot

from app.chat.chat_list_delegate import menu_rect, row_rect
from app.chat.chat_list_view import ChatListView
from app.qtmodels.chat_list import ChatListRole

pytestmark = pytest.mark.usefixtures("themed")


@pytest.fixture
def chats(qtbot: QtBot, themed: None) -> Iterator[ChatListView]:
    model = QStandardItemModel()
    for i, (title, section) in enumerate([("One", "Today"), ("Two", "Today"), ("三", "Yesterday")], 1):
        item = QStandardItem(title)
        item.setData(i, ChatListRole.ID)
        item.setData(title, ChatListRole.TITLE)
        item.setData(section, ChatListRole.SECTION)
        item.setData(i == 1, ChatListRole.STREAMING)
        model.appendRow(item)
    view = ChatListView()
    qtbot.addWidget(view)
    view.set_model(model)
    view.resize(232, 700)
    view.show()
    yield view


def test_click_opens_a_chat_and_a_heading_does_not(chats: ChatListView, qtbot: QtBot) -> None:
    rows = chats._list
    index = rows.model().index(2, 0)
    rect = rows.visualRect(index)
    with qtbot.waitSignal(chats.opened) as blocker:
        qtbot.mouseClick(rows.viewport(), Qt.MouseButton.LeftButton, pos=row_rect(rect, index).center())
    assert blocker.args == [3]
    with qtbot.assertNotEmitted(chats.opened):
        qtbot.mouseClick(rows.viewport(), Qt.MouseButton.LeftButton, pos=rect.topLeft() + rect.topLeft() * 0)


def test_rename_in_place(chats: ChatListView, qtbot: QtBot) -> None:
    chats.set_current(2)
    qtbot.keyClick(chats._list, Qt.Key.Key_F2)
    assert chats._editor.text() == "Two"
    chats._editor.setText("  Second  ")
    with qtbot.waitSignal(chats.rename_requested) as blocker:
        qtbot.keyClick(chats._editor, Qt.Key.Key_Return)
    assert blocker.args == [2, "Second"]


def test_escape_leaves_the_title(chats: ChatListView, qtbot: QtBot) -> None:
    chats.set_current(2)
    chats.rename_current()
    chats._editor.setText("x")
    with qtbot.assertNotEmitted(chats.rename_requested):
        qtbot.keyClick(chats._editor, Qt.Key.Key_Escape)
    assert not chats._editor.isVisible()


def test_keys_open_and_delete(chats: ChatListView, qtbot: QtBot) -> None:
    chats.set_current(1)
    with qtbot.waitSignal(chats.opened):
        qtbot.keyClick(chats._list, Qt.Key.Key_Return)
    with qtbot.waitSignal(chats.delete_requested) as blocker:
        qtbot.keyClick(chats._list, Qt.Key.Key_Delete)
    assert blocker.args == [1]


@pytest.mark.qt_log_ignore("This plugin does not support")
def test_menu_offers_rename_and_delete(chats: ChatListView, qtbot: QtBot) -> None:
    rows = chats._list
    index = rows.model().index(1, 0)
    qtbot.mouseClick(rows.viewport(), Qt.MouseButton.LeftButton, pos=menu_rect(rows.visualRect(index), index).center())
    assert [action.text() for action in chats._menu.actions()] == ["Rename", "Delete"]
    with qtbot.waitSignal(chats.delete_requested) as blocker:
        chats._menu.actions()[1].trigger()
    assert blocker.args == [2]
    chats._menu.close()


def test_search_is_reported_after_a_pause(chats: ChatListView, qtbot: QtBot) -> None:
    with qtbot.waitSignal(chats.search_changed) as blocker:
        qtbot.keyClicks(chats._search.edit, "numa")
    assert blocker.args == ["numa"]


def test_new_chat(chats: ChatListView, qtbot: QtBot) -> None:
    with qtbot.waitSignal(chats.new_requested):
        chats._new.click()
