"""The screens of the picture book that lie over a page: settings, palette, model picker, sampling; and the narrow window."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.actions.tables import ACTIONS
from app.chat.sampling_panel import SamplingPanel
from app.ops.model_files import ModelFile
from app.preferences.dialog import PreferencesDialog
from app.settings.store import SettingsStore
from app.shots import script
from app.shots.screens import Frame, chat_page
from app.store.rows import ChatRow
from app.windows.model_picker import open_model_picker
from app.windows.palette import open_palette

NARROW = (700, 900)


def _answered() -> Frame:
    page = chat_page()
    page.transcript.set_messages(script.long_answer())
    page.set_conversation_shown(True)
    return Frame(page)


def inside(frame: Frame, widget: QWidget, x: int, y: int) -> None:
    """A window of its own, shown as a part of the frame so that both are in the picture."""
    widget.setParent(frame, Qt.WindowType.Widget)
    widget.move(x, y)
    widget.show()
    widget.raise_()


def _settings(section: str) -> Frame:
    frame = _answered()
    with tempfile.TemporaryDirectory() as folder:
        dialog = PreferencesDialog(SettingsStore(Path(folder) / "settings.toml"), ACTIONS, "1.0.0")
    dialog.show_page(section)
    x, y = (frame.width() - dialog.width()) // 2, (frame.height() - dialog.height()) // 2
    inside(frame, Outline(dialog.width() + 2, dialog.height() + 2), x - 1, y - 1)
    inside(frame, dialog, x, y)
    return frame


class Outline(QWidget):
    """The frame that a window manager draws."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__()
        self.resize(width, height)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), theme.color("line2"))


def settings() -> QWidget:
    """The options of the engine."""
    return _settings("engine")


def settings_general() -> QWidget:
    """The first page of the settings."""
    return _settings("general")


def palette() -> QWidget:
    """Commands and chats."""
    frame = _answered()
    actions = []
    for row in ACTIONS:
        if row.in_palette:
            action = QAction(row.text, frame)
            action.setShortcut(QKeySequence(row.shortcut))
            actions.append(action)
    titles = [title for _section, names in script.CHATS for title in names]
    chats = [ChatRow(i, title, 0.0, 0.0, None, "", "{}", "") for i, title in enumerate(titles, 1)]
    open_palette(frame, actions, chats, lambda _chat_id: None)
    return frame


def model_picker() -> QWidget:
    """The models of this machine."""
    frame = _answered()
    models = (
        ModelFile("/models/smollm2.gguf", "SmolLM2 135M Instruct", "Q4_1", 98_000_000),
        ModelFile("/models/qwen3.gguf", "Qwen3 30B A3B", "Q4_K_M", 18_600_000_000),
        ModelFile("/models/deepseek.gguf", "DeepSeek V3.1", "Q4_K_M", 405 * script.GB),
    )
    open_model_picker(frame, models, models[0].path, lambda _path: None, lambda _action_id: None)
    return frame


def sampling() -> QWidget:
    """The numbers of the sampling."""
    frame = _answered()
    panel = SamplingPanel()
    panel.adjustSize()
    inside(frame, panel, 72 + 232 + 70, frame.height() - 138 - panel.height())
    return frame


def context_full() -> QWidget:
    """A message that does not fit, and the ways out."""
    page = chat_page()
    page.header.set_context(8120, 8192)
    page.side_panel.set_context(8120, 8192)
    page.transcript.set_messages(script.long_answer())
    page.transcript.set_seen_from(2)
    page.set_conversation_shown(True)
    page.composer.set_text("And how does that change with two sockets?")
    page.context_card.show_overflow(8371, 8192, 6, 16384, is_new=False)
    return Frame(page)


def narrow() -> QWidget:
    """The least width: the side panel gives its room to the chat."""
    frame = _answered()
    frame.resize(*NARROW)
    return frame


OVERLAYS: Mapping[str, Callable[[], QWidget]] = {
    "settings": settings,
    "settings_general": settings_general,
    "palette": palette,
    "model_picker": model_picker,
    "sampling": sampling,
    "context_full": context_full,
    "narrow": narrow,
}
