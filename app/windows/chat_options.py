"""ChatOptions: sampling and system prompt of the shown chat, or of the next new one, with the two boxes that change them."""

from __future__ import annotations

from PySide6.QtCore import QObject, QPoint, Signal
from PySide6.QtWidgets import QWidget

from app.bridge.throttle import Throttle
from app.chat.sampling_panel import SamplingPanel
from app.chat.system_prompt import SystemPromptDialog
from app.ops.chat_ops import ChatOps
from app.settings.store import SettingsStore
from app.store.chat_store import ChatStore
from engine.api.values import SamplingParams

SAVE_MS = 300
"""A slider that is dragged changes its value often; the store sees it this often."""


class ChatOptions(QObject):
    """Signal changed(): what the composer shows of the options is out of date."""

    changed = Signal()

    def __init__(
        self, anchor: QWidget, store: ChatStore, chats: ChatOps, settings: SettingsStore, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._anchor = anchor
        self._store = store
        self._chats = chats
        self._settings = settings
        self._chat_id: int | None = None
        # What the next new chat starts with, when it was chosen before the first message.
        self._new_sampling: SamplingParams | None = None
        self._new_prompt: str | None = None
        self._edited: SamplingParams | None = None
        self._panel: SamplingPanel | None = None
        self._dialog: SystemPromptDialog | None = None
        self._save_sampling = Throttle(SAVE_MS, chats.set_sampling, self)

    def show_for(self, chat_id: int | None) -> None:
        """Another chat is shown."""
        self.flush()
        self._edited = None
        self._chat_id = chat_id
        self.changed.emit()

    def new_chat_options(self) -> tuple[SamplingParams | None, str | None]:
        """What was chosen for the next new chat; None where nothing was."""
        return self._new_sampling, self._new_prompt

    def forget_new(self) -> None:
        """The new chat was made."""
        self._new_sampling = self._new_prompt = None

    def flush(self) -> None:
        """Saves what waits."""
        self._save_sampling.flush()

    def sampling(self) -> SamplingParams:
        """The sampling in force."""
        if self._edited is not None:
            return self._edited
        if self._chat_id is None:
            return self._new_sampling or self._settings.values.sampling_params()
        return self._chats.sampling(self._store.chat(self._chat_id))

    def system_prompt(self) -> str:
        """The system prompt in force."""
        if self._chat_id is None:
            return self._settings.values.chat.system_prompt if self._new_prompt is None else self._new_prompt
        return self._store.chat(self._chat_id).system_prompt

    def set_sampling(self, sampling: SamplingParams) -> None:
        """Another sampling, from the next answer on."""
        if self._chat_id is None:
            self._new_sampling = sampling
        else:
            self._edited = sampling
            self._save_sampling(self._chat_id, sampling)
        self.changed.emit()

    def set_system_prompt(self, prompt: str) -> None:
        """Another system prompt, from the next answer on."""
        if self._chat_id is None:
            self._new_prompt = prompt
            self.changed.emit()
        else:
            self._chats.set_system_prompt(self._chat_id, prompt)

    def open_sampling(self) -> None:
        """The panel with the numbers, above the composer."""
        if self._panel is None:
            self._panel = SamplingPanel(self._anchor)
            self._panel.params_changed.connect(self.set_sampling)
        self._panel.set_params(self.sampling())
        self._panel.open_at(self._anchor.mapToGlobal(QPoint(44, 0)))

    def open_system_prompt(self) -> None:
        """The dialog with the text."""
        if self._dialog is None:
            self._dialog = SystemPromptDialog(self._anchor.window())
            self._dialog.prompt_accepted.connect(self.set_system_prompt)
        self._dialog.open_with(self.system_prompt())
