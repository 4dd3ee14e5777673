"""ContextController: asks before a prompt goes out that does not fit into the context, and carries out what was chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

from app.bridge.engine_bridge import EngineBridge
from app.chat.chat_page import ChatPage
from app.i18n import tr
from app.ops.context_ops import ContextOps, Overflow, Prompt
from app.ops.model_ops import ModelOps

Send = Callable[[int | None], None]


@dataclass(frozen=True, slots=True)
class _Question:
    prompt: Prompt
    overflow: Overflow
    send: Send


@dataclass(frozen=True, slots=True, eq=False)
class _Check:
    """A count under way."""

    held: Callable[[], None]


class ContextController(QObject):
    """Signals: notice(sentence); new_chat_requested(text) to ask there instead."""

    notice = Signal(str)
    new_chat_requested = Signal(str)

    def __init__(
        self, page: ChatPage, context: ContextOps, models: ModelOps, bridge: EngineBridge, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._page = page
        self._context = context
        self._models = models
        self._bridge = bridge
        self._question: _Question | None = None
        self._checking: _Check | None = None
        card = page.context_card
        card.trim_requested.connect(self._on_trim)
        card.longer_requested.connect(self._on_longer)
        card.new_chat_requested.connect(self._on_new_chat)
        card.dismissed.connect(self._on_dismissed)

    def guard(self, prompt: Prompt, send: Send, held: Callable[[], None]) -> None:
        """Calls send(None) when the prompt fits, send(message id) when the chat is to be given from there on. One that does not
        fit is asked about: held() says that it waits. A chat that was trimmed before is trimmed again without asking."""
        self.drop()
        checking = self._checking = _Check(held)

        def answered(overflow: Overflow | None) -> None:
            if self._checking is not checking:
                return
            self._checking = None
            if overflow is None:
                send(None)
            elif overflow.agreed and overflow.n_left_out:
                send(overflow.seen_from)
            else:
                held()
                self._ask(_Question(prompt, overflow, send))

        self._context.check(prompt, answered)

    def drop(self) -> None:
        """Another chat is shown, the text changed, or Stop was pressed: nothing is asked or sent any more."""
        checking, self._checking = self._checking, None
        if checking is not None:
            checking.held()
        self._question = None
        self._page.context_card.hide()

    def drop_asked(self) -> None:
        """The text in the composer changed: a question about it no longer stands."""
        question = self._question
        if question is not None and question.prompt.text and self._page.composer.text() != question.prompt.text:
            self.drop()

    def _ask(self, question: _Question) -> None:
        self._question = question
        full = question.overflow
        is_new = question.prompt.chat_id is None
        self._page.context_card.show_overflow(full.n_tokens, full.n_ctx, full.n_left_out, full.longer, is_new=is_new)

    def _take(self) -> _Question | None:
        question = self._question
        self.drop()
        return question

    def _on_trim(self) -> None:
        question = self._take()
        if question is not None:
            question.send(question.overflow.seen_from)

    def _on_longer(self) -> None:
        """The model is loaded again for this run; the answer waits for it."""
        question = self._take()
        model = self._bridge.state.model
        if question is None or model is None:
            return
        self._models.load(model.path, question.overflow.longer)
        self.notice.emit(tr("Chats", "Loaded with a longer context until you quit; Settings, Engine keeps it."))
        question.send(None)

    def _on_new_chat(self) -> None:
        question = self._take()
        if question is not None:
            self.new_chat_requested.emit(question.prompt.text)

    def _on_dismissed(self) -> None:
        self.drop()
        self._page.composer.focus()
