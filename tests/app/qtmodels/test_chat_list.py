"""The list of chats as an item model."""

from __future__ import annotations

import datetime

import pytest
from PySide6.QtCore import Qt
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from app.qtmodels.chat_list import ChatListModel, ChatListRole, section_of
from app.store.rows import ChatRow

TODAY = datetime.date(2026, 11, 30)


def row(chat_id: int, title: str = "t", days_ago: int = 0) -> ChatRow:
    at = datetime.datetime.combine(TODAY - datetime.timedelta(days_ago), datetime.time(12)).timestamp()
    return ChatRow(chat_id, title, at, at, None, "", "{}", "")


def test_model_keeps_qts_rules_through_changes(qtbot: QtBot, qtmodeltester: ModelTester) -> None:
    model = ChatListModel(today=lambda: TODAY)
    qtmodeltester.check(model)
    model.set_rows([row(1), row(2, "two", 1)])
    qtmodeltester.check(model)
    model.set_rows([row(3)])
    model.set_rows([])


def test_roles(qtbot: QtBot) -> None:
    model = ChatListModel(today=lambda: TODAY)
    model.set_rows([row(7, "Seven", 1)])
    index = model.index(0)
    assert index.data() == "Seven"
    assert (index.data(ChatListRole.ID), index.data(ChatListRole.TITLE), index.data(ChatListRole.SECTION)) == (
        7,
        "Seven",
        "Yesterday",
    )
    assert index.data(ChatListRole.STREAMING) is False
    assert index.data(Qt.ItemDataRole.DecorationRole) is None
    assert model.row_of(7) == 0
    assert model.row_of(8) is None


def test_a_new_title_and_a_stream_change_one_row(qtbot: QtBot) -> None:
    model = ChatListModel(today=lambda: TODAY)
    model.set_rows([row(1, "a"), row(2, "b")])
    with qtbot.assertNotEmitted(model.modelReset), qtbot.waitSignal(model.dataChanged) as changed:
        model.set_rows([row(1, "a"), row(2, "new")])
    assert changed.args[0].row() == 1
    with qtbot.waitSignal(model.dataChanged) as changed:
        model.set_streaming([1])
    assert changed.args[0].row() == 0
    with qtbot.assertNotEmitted(model.dataChanged):
        model.set_streaming([1])


@pytest.mark.parametrize(
    ("days", "section"), [(-1, "Today"), (0, "Today"), (1, "Yesterday"), (6, "Last 7 days"), (20, "Last 30 days"), (90, "Older")]
)
def test_sections(days: int, section: str) -> None:
    at = datetime.datetime.combine(TODAY - datetime.timedelta(days), datetime.time(1)).timestamp()
    assert section_of(at, TODAY) == section
