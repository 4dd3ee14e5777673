"""The palette (Ctrl+K): every action that can run now, and the chats."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QWidget

from app.i18n import tr
from app.store.rows import ChatRow
from app.windows.picker import Entry, Picker, matching

MAX_CHATS = 50
ChatKey = int | QAction


def palette_entries(query: str, actions: Sequence[QAction], chats: Sequence[ChatRow]) -> tuple[Entry, ...]:
    """Actions first, then chats. key: the QAction, or the id of the chat."""
    native = QKeySequence.SequenceFormat.NativeText
    commands = [Entry(action, action.text(), keys=action.shortcut().toString(native), icon="zap") for action in actions]
    talks = [Entry(chat.id, chat.title, icon="message-square") for chat in chats]
    return matching(query, commands) + matching(query, talks)[:MAX_CHATS]


def open_palette(
    window: QWidget,
    actions: Sequence[QAction],
    chats: Sequence[ChatRow],
    open_chat: Callable[[int], None],
) -> Picker:
    """Opens the palette over the window. The chosen action is triggered, the chosen chat opened."""

    def chosen(key: ChatKey) -> None:
        if isinstance(key, QAction):
            key.trigger()
        else:
            open_chat(key)

    picker = Picker(
        window,
        tr("Palette", "Commands and chats"),
        tr("Palette", "Type a command or the name of a chat"),
        lambda query: palette_entries(query, actions, chats),
    )
    picker.chosen.connect(chosen)
    picker.open_over(window)
    return picker
