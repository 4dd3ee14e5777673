"""ErrorActions: the button of an answer that failed does what helps against that error."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

from app.chat.transcript_view import TranscriptView
from app.ops.chat_ops import ChatOps
from app.ops.model_ops import ModelOps
from app.store.rows import MessageRow

MODEL_CHANGED = "ModelChanged"
OUT_OF_DEVICE_MEMORY = "OutOfDeviceMemory"


class ErrorActions(QObject):
    """again(row): answers once more. room_wanted(sentence of the error): a device ran full."""

    room_wanted = Signal(str)

    def __init__(
        self,
        transcript: TranscriptView,
        chats: ChatOps,
        models: ModelOps,
        again: Callable[[MessageRow], None],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._chats, self._models, self._again = chats, models, again
        transcript.error_action_requested.connect(self._on_error_action)

    def _on_error_action(self, message_id: int) -> None:
        row = self._chats.row(message_id)
        if row is None:
            return
        if row.error_kind == OUT_OF_DEVICE_MEMORY:
            self.room_wanted.emit(row.error)
            return
        if row.error_kind == MODEL_CHANGED:
            self._models.reload()
        self._again(row)
