"""The tables of actions and what is made from them."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.actions.registry import ActionRegistry, shortcut_text
from app.actions.tables import ACTIONS


def test_ids_and_shortcuts_are_unique() -> None:
    ids = [row.id for row in ACTIONS]
    assert len(ids) == len(set(ids))
    shortcuts = [row.shortcut for row in ACTIONS if row.shortcut]
    assert len(shortcuts) == len(set(shortcuts))
    assert all(shortcut_text(row) for row in ACTIONS if row.shortcut)


def test_actions_run_their_handler_and_follow_the_conditions(qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    ran: list[str] = []
    registry = ActionRegistry(window, ACTIONS, {row.id: lambda row_id=row.id: ran.append(row_id) for row in ACTIONS})
    registry.action("new_chat").trigger()
    registry.action("stop").trigger()
    assert ran == ["new_chat"]
    registry.set_conditions(frozenset({"can_stop"}))
    registry.action("stop").trigger()
    assert ran == ["new_chat", "stop"]
    offered = [action.objectName() for action in registry.offered()]
    assert "stop" in offered
    assert "palette" not in offered
    assert "rename_chat" not in offered
