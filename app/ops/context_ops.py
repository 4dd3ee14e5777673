"""ContextOps: how much of the model's context a chat takes, and what to leave out of a prompt that does not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal

from app.bridge.engine_bridge import EngineBridge
from app.bridge.op import Op
from app.ops.prompts import conversation, sent_rows
from app.store.chat_store import ChatStore
from app.store.chats import NoSuchRow
from app.store.rows import MessageRow
from engine.api.commands import CountTokens
from engine.api.events import TokenCount
from engine.api.values import ChatMessage, RequestId

ROOM = 256
"""A prompt fits when this many tokens are left for the answer; an eighth of a small context."""
TRIM_TO = 0.6
"""Trimming leaves this share of the context in use, so that several turns fit before the next one."""
MESSAGE_TOKENS = 16
"""At most this many tokens come with a message from the template; a byte of text is never more than one token."""
NEW_MESSAGE = 0
"""Stands for the id of a message that is not saved yet."""


@dataclass(frozen=True, slots=True)
class ContextUse:
    """Tokens of the shown branch in the context of the loaded model."""

    chat_id: int
    used: int
    total: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is about to be sent: the branch up to a message, and a new question after it."""

    chat_id: int | None
    up_to: int | None = None
    text: str = ""
    system_prompt: str = ""


@dataclass(frozen=True, slots=True)
class Overflow:
    """A prompt that leaves no room for an answer.

    n_left_out: messages that trimming leaves out, 0 when it cannot help. seen_from: the first message that stays (NEW_MESSAGE:
    only the new one). agreed: this chat was trimmed before. longer: a context the model allows that is enough, 0 for none.
    """

    n_tokens: int
    n_ctx: int
    n_left_out: int = 0
    seen_from: int | None = None
    agreed: bool = False
    longer: int = 0


Answered = Callable[[Overflow | None], None]


class ContextOps(QObject):
    """Signal used(ContextUse): the newest figure of a chat."""

    used = Signal(object)

    def __init__(self, store: ChatStore, bridge: EngineBridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._bridge = bridge
        self._asked: dict[int, RequestId] = {}

    def tell(self, chat_id: int, used: int) -> None:
        """A figure that the engine reported with an answer; counts under way are out of date."""
        self._asked.pop(chat_id, None)
        model = self._bridge.state.model
        # The last token of an answer takes no place in the context any more.
        self._emit(chat_id, used if model is None else min(used, model.n_ctx))

    def count(self, chat_id: int) -> None:
        """Tells at once what the figures of the answers say, then what the engine counts."""
        if not self._bridge.state.can_answer:
            return
        try:
            chat = self._store.chat(chat_id)
            rows = sent_rows(self._store.messages(chat_id), chat.seen_from)
        except NoSuchRow:
            return
        messages = conversation(chat.system_prompt, rows)
        self.tell(chat_id, known_use(rows))
        if messages:
            self._asked[chat_id] = self._count(messages, lambda event: self._on_counted(chat_id, event))

    def check(self, prompt: Prompt, answered: Answered) -> None:
        """Calls `answered` with None when the prompt fits or that cannot be known yet, else with what can be done. At once for a
        prompt that surely fits."""
        model = self._bridge.state.model
        if model is None:
            answered(None)
            return
        rows, seen_from = self._rows(prompt)
        search = _Search(prompt, rows, model.n_ctx, max(model.n_ctx, model.context_length), seen_from is not None, answered)
        if search.most_tokens() <= search.limit:
            answered(None)
            return
        self._count(search.messages(0), lambda event: self._on_whole_counted(search, event.n_tokens))

    def _rows(self, prompt: Prompt) -> tuple[tuple[MessageRow, ...], int | None]:
        """The branch as it is sent, and from where on."""
        if prompt.chat_id is None:
            return (), None
        try:
            chat = self._store.chat(prompt.chat_id)
            rows = self._store.branch_to(prompt.up_to) if prompt.up_to is not None else ()
        except NoSuchRow:
            return (), None
        kept = sent_rows(rows, chat.seen_from)
        return kept, chat.seen_from if len(kept) < len(rows) else None

    def _count(self, messages: tuple[ChatMessage, ...], handler: Callable[[TokenCount], None]) -> RequestId:
        return Op(self._bridge, CountTokens(self._bridge.new_id(), messages)).on(TokenCount, handler).run()

    def _on_counted(self, chat_id: int, event: TokenCount) -> None:
        if self._asked.get(chat_id) == event.request_id:
            del self._asked[chat_id]
            self._emit(chat_id, event.n_tokens)

    def _on_whole_counted(self, search: _Search, n_tokens: int) -> None:
        search.n_tokens = n_tokens
        if n_tokens <= search.limit:
            search.answered(None)
        else:
            self._try(search, search.first_cut())

    def _try(self, search: _Search, cut: int) -> None:
        if cut == 0:
            search.answered(search.overflow(0))
            return
        self._count(search.messages(cut), lambda event: self._on_cut_counted(search, cut, event.n_tokens))

    def _on_cut_counted(self, search: _Search, cut: int, n_tokens: int) -> None:
        if n_tokens <= search.limit:
            search.answered(search.overflow(cut))
        else:
            self._try(search, search.next_cut(cut))

    def _emit(self, chat_id: int, used: int) -> None:
        model = self._bridge.state.model
        if model is not None:
            self.used.emit(ContextUse(chat_id, used, model.n_ctx))


class _Search:
    """Where to cut: the first question that brings the prompt below TRIM_TO by the bytes of the texts, then checked by tokens."""

    def __init__(
        self, prompt: Prompt, rows: Sequence[MessageRow], n_ctx: int, n_most: int, agreed: bool, answered: Answered
    ) -> None:
        self.answered = answered
        self.n_tokens = 0
        self.limit = n_ctx - min(ROOM, n_ctx // 8)
        self._rows = tuple(rows)
        if prompt.text:
            new = MessageRow(NEW_MESSAGE, prompt.chat_id or 0, prompt.up_to, "user", prompt.text, "done", 0.0)
            self._rows = (*self._rows, new)
        self._system = prompt.system_prompt
        self._n_ctx = n_ctx
        self._n_most = n_most
        self._agreed = agreed
        self._cuts = [i for i, row in enumerate(self._rows) if row.role == "user" and i > 0]

    def messages(self, cut: int) -> tuple[ChatMessage, ...]:
        """The prompt without the rows before `cut`."""
        return conversation(self._system, self._rows[cut:])

    def most_tokens(self) -> int:
        """More tokens than this the prompt cannot have."""
        return len(self._system.encode("utf-8", "surrogatepass")) + MESSAGE_TOKENS + sum(map(_weight, self._rows))

    def first_cut(self) -> int:
        """The cut to try first; 0 for none."""
        weights = [_weight(row) for row in self._rows]
        per_weight = self.n_tokens / max(1, sum(weights))
        fitting = (cut for cut in self._cuts if sum(weights[cut:]) * per_weight <= TRIM_TO * self._n_ctx)
        return next(fitting, self._cuts[-1] if self._cuts else 0)

    def next_cut(self, cut: int) -> int:
        """A later cut, half-way to the last one; 0 when there is none."""
        later = [one for one in self._cuts if one > cut]
        return later[len(later) // 2] if later else 0

    def overflow(self, cut: int) -> Overflow:
        """What can be done; cut 0: nothing can be left out."""
        n_tokens = self.n_tokens
        longer = self._n_ctx
        while longer - min(ROOM, longer // 8) < n_tokens and longer < self._n_most:
            longer = min(2 * longer, self._n_most)
        enough = longer > self._n_ctx and longer - min(ROOM, longer // 8) >= n_tokens
        full = Overflow(n_tokens, self._n_ctx, agreed=self._agreed, longer=longer if enough else 0)
        return replace(full, n_left_out=cut, seen_from=self._rows[cut].id) if cut else full


def _weight(row: MessageRow) -> int:
    return len(row.text.encode("utf-8", "surrogatepass")) + MESSAGE_TOKENS


def known_use(rows: Sequence[MessageRow]) -> int:
    """Tokens by the figures of the newest answer that has some, with a guess for what follows it."""
    used = 0
    for row in reversed(rows):
        if row.role == "assistant" and row.figures.n_prompt:
            return used + row.figures.n_prompt + row.figures.n_tokens
        used += len(row.text.encode("utf-8", "surrogatepass")) // 4
    return used
