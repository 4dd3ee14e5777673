"""ChatListModel: the list of conversations as a Qt item model, newest first, with the section (day) each belongs to."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from app.i18n import tr
from app.store.rows import ChatRow

Index = QModelIndex | QPersistentModelIndex


class ChatListRole(IntEnum):
    """Roles beside DisplayRole (the title). UPDATED_S: since the epoch; SECTION: `Today`, `Yesterday`, ...; STREAMING: bool."""

    ID = Qt.ItemDataRole.UserRole + 1
    TITLE = Qt.ItemDataRole.UserRole + 2
    UPDATED_S = Qt.ItemDataRole.UserRole + 3
    SECTION = Qt.ItemDataRole.UserRole + 4
    STREAMING = Qt.ItemDataRole.UserRole + 5


def section_of(updated_s: float, today: datetime.date) -> str:
    """The heading a conversation stands under."""
    days = (today - datetime.date.fromtimestamp(updated_s)).days
    if days <= 0:
        return tr("Chats", "Today")
    if days == 1:
        return tr("Chats", "Yesterday")
    if days < 7:
        return tr("Chats", "Last 7 days")
    if days < 30:
        return tr("Chats", "Last 30 days")
    return tr("Chats", "Older")


class ChatListModel(QAbstractListModel):
    """Rows of `ChatRow`, kept in the order given (the store gives newest first)."""

    def __init__(self, parent: QObject | None = None, today: Callable[[], datetime.date] = datetime.date.today) -> None:
        super().__init__(parent)
        self._rows: tuple[ChatRow, ...] = ()
        self._streaming: frozenset[int] = frozenset()
        self._today = today

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008  Qt's own default
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or not 0 <= index.row() < len(self._rows):
            return None
        row = self._rows[index.row()]
        match role:
            case Qt.ItemDataRole.DisplayRole | Qt.ItemDataRole.EditRole | ChatListRole.TITLE | Qt.ItemDataRole.AccessibleTextRole:
                return row.title
            case ChatListRole.ID:
                return row.id
            case ChatListRole.UPDATED_S:
                return row.updated_s
            case ChatListRole.SECTION:
                return section_of(row.updated_s, self._today())
            case ChatListRole.STREAMING:
                return row.id in self._streaming
            case _:
                return None

    def chats(self) -> tuple[ChatRow, ...]:
        """The rows, as shown."""
        return self._rows

    def row_of(self, chat_id: int) -> int | None:
        """The row that shows this chat; None when it is not listed."""
        return next((i for i, row in enumerate(self._rows) if row.id == chat_id), None)

    def set_rows(self, rows: Iterable[ChatRow]) -> None:
        """Shows these chats. Rows that only changed their content keep their place and their selection."""
        new = tuple(rows)
        if [row.id for row in new] == [row.id for row in self._rows]:
            changed = [i for i, (old, now) in enumerate(zip(self._rows, new, strict=True)) if old != now]
            self._rows = new
            for i in changed:
                self.dataChanged.emit(self.index(i), self.index(i))
            return
        self.beginResetModel()
        self._rows = new
        self.endResetModel()

    def set_streaming(self, chat_ids: Iterable[int]) -> None:
        """Marks the chats in which an answer is being written."""
        new = frozenset(chat_ids)
        changed = new ^ self._streaming
        self._streaming = new
        for i, row in enumerate(self._rows):
            if row.id in changed:
                self.dataChanged.emit(self.index(i), self.index(i), [ChatListRole.STREAMING])
