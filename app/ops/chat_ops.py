"""ChatOps: what people do with chats, one method each. It writes the store, asks the engine, and tells what changed by signals.

Answers go on, and are journalled, whichever chat is shown. It never touches a widget.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from PySide6.QtCore import QObject, Signal

from app.bridge.engine_bridge import EngineBridge
from app.bridge.op import Op
from app.bridge.ui_thread import UiThread
from app.errors import UserFacingError
from app.i18n import filled, tr
from app.ops.context_ops import NEW_MESSAGE, ContextOps
from app.ops.expert_history import ExpertHistory
from app.ops.live_answer import LiveAnswer
from app.ops.prompts import conversation, overrides_json, sampling_of, sent_rows, title_of
from app.settings.store import SettingsStore
from app.store import chats
from app.store.chat_store import ChatStore
from app.store.rows import ChatRow, MessageRow
from engine.api.commands import Generate
from engine.api.events import AnswerOpened, Failed, Finished, PrefillProgress, Queued, TokenDelta
from engine.api.values import SamplingParams

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Undo:
    """A finished operation that can be taken back: the sentence for the toast and what its button does."""

    text: str
    run: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Trouble:
    """An operation that failed: the sentence, and the text the user had written, which goes back into the composer."""

    sentence: str
    draft: str = ""
    chat_id: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and the answer that is begun. question None: the question was there before."""

    chat: ChatRow
    question: MessageRow | None
    answer: MessageRow


class ChatOps(QObject):
    """Signals carry frozen values; ids are those of the store."""

    chats_changed = Signal()
    turn_begun = Signal(object)
    branch_changed = Signal(int)
    updated = Signal(object)
    text_added = Signal(int, str)
    prefill = Signal(int, int, int, object)
    figures = Signal(int, object, int)
    thought = Signal(int, object, object)
    context_used = Signal(object)
    undoable = Signal(object)
    troubled = Signal(object)
    waits = Signal(str)

    def __init__(
        self, store: ChatStore, bridge: EngineBridge, settings: SettingsStore, ui: UiThread, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._store = store
        self._bridge = bridge
        self._settings = settings
        self._ui = ui
        self._experts = ExpertHistory(store)
        self._live: dict[int, LiveAnswer] = {}
        self._starting: set[int | None] = set()
        self.context = ContextOps(store, bridge, self)
        self.context.used.connect(self.context_used)

    # --- questions ---------------------------------------------------------------------------------------------------

    def is_busy(self, chat_id: int | None) -> bool:
        """True while a question of this chat is being saved or answered."""
        return chat_id in self._starting or (chat_id is not None and chat_id in self.streaming_chats())

    def streaming_chats(self) -> frozenset[int]:
        """Chats in which an answer is being written."""
        return frozenset(live.row.chat_id for live in self._live.values())

    def shown(self, row: MessageRow) -> MessageRow:
        """The newest state of a row that was read from the store."""
        live = self._live.get(row.id)
        return row if live is None else live.row

    # --- operations --------------------------------------------------------------------------------------------------

    def send(
        self,
        chat_id: int | None,
        text: str,
        sampling: SamplingParams | None = None,
        system_prompt: str | None = None,
        seen_from: int | None = None,
    ) -> bool:
        """Saves a question, in a new chat when chat_id is None, and has it answered. False when there is nothing to send or the
        chat is busy. sampling and system_prompt are for a new chat; None takes the defaults. seen_from: the model is given the
        chat from there on from now on (NEW_MESSAGE: from this question on); None leaves that as it is."""
        if not text.strip() or self.is_busy(chat_id):
            return False
        defaults = self._settings.values
        options = "{}" if sampling is None else overrides_json(defaults.sampling_params(), sampling)
        prompt = defaults.chat.system_prompt if system_prompt is None else system_prompt

        model_path = self._model_path()

        def save(db: sqlite3.Connection) -> Turn:
            chat = chats.chat(db, chat_id) if chat_id is not None else chats.add_chat(db, title_of(text), prompt, options)
            question = chats.add_message(db, chat.id, chat.leaf_id, "user", text)
            _trim(db, chat.id, seen_from, question.id)
            return _begin(db, chat.id, question.id, question, model_path)

        self._start(chat_id, save, draft=text)
        return True

    def regenerate(self, message_id: int, seen_from: int | None = None) -> None:
        """Another answer beside this one, or an answer to this question; seen_from as in `send`."""
        row = self.row(message_id)
        if row is None or self.is_busy(row.chat_id):
            return
        parent_id = row.parent_id if row.role == "assistant" else row.id

        model_path = self._model_path()

        def save(db: sqlite3.Connection) -> Turn:
            _trim(db, row.chat_id, seen_from, parent_id)
            return _begin(db, row.chat_id, parent_id, None, model_path)

        self._start(row.chat_id, save)

    def edit(self, message_id: int, text: str) -> None:
        """Another version beside this message; a question is answered again."""
        row = self.row(message_id)
        if row is None or not text.strip() or self.is_busy(row.chat_id):
            return
        if row.role == "assistant":
            self._change(
                lambda db: chats.add_message(db, row.chat_id, row.parent_id, "assistant", text),
                lambda added: self.branch_changed.emit(added.chat_id),
                draft=text,
            )
            return

        model_path = self._model_path()

        def save(db: sqlite3.Connection) -> Turn:
            question = chats.add_message(db, row.chat_id, row.parent_id, "user", text)
            return _begin(db, row.chat_id, question.id, question, model_path)

        self._start(row.chat_id, save, draft=text)

    def continue_answer(self, message_id: int, seen_from: int | None = None) -> None:
        """Goes on with an answer that was stopped or interrupted; seen_from as in `send`."""
        row = self.row(message_id)
        if row is None or row.role != "assistant" or self.is_busy(row.chat_id):
            return
        if not row.text:
            self.regenerate(message_id, seen_from)
            return
        live = LiveAnswer(row, self._bridge.new_id())

        def save(db: sqlite3.Connection) -> None:
            if seen_from is not None:
                chats.set_seen_from(db, row.chat_id, seen_from)

        def saved(_: None) -> None:
            self._starting.discard(row.chat_id)
            self._generate(live, continue_last=True)

        def failed(error: UserFacingError) -> None:
            self._starting.discard(row.chat_id)
            self.troubled.emit(Trouble(str(error), "", row.chat_id))

        # Behind every change that waits to be saved: an answer goes on with the sampling that was chosen last.
        self._starting.add(row.chat_id)
        self._ui.deliver(self._store.change(save), saved, failed)

    def stop(self, chat_id: int) -> None:
        """Stops the answer of a chat; what is written stays."""
        for live in self._live.values():
            if live.row.chat_id == chat_id:
                self._bridge.cancel(live.request_id)

    def switch_branch(self, message_id: int, step: int) -> None:
        """Shows the sibling `step` places away."""
        self._change(lambda db: chats.switch_branch(db, message_id, step), lambda chat: self.branch_changed.emit(chat.id))

    def rename(self, chat_id: int, title: str) -> None:
        """Gives a chat another title; an empty one is left as it is."""
        cleaned = " ".join(title.split())
        if cleaned:
            self._change(lambda db: chats.rename(db, chat_id, cleaned), lambda chat: self.chats_changed.emit())

    def set_system_prompt(self, chat_id: int, prompt: str) -> None:
        """Another system prompt; holds from the next answer on."""
        self._change(lambda db: chats.set_system_prompt(db, chat_id, prompt), lambda chat: self.chats_changed.emit())

    def set_sampling(self, chat_id: int, sampling: SamplingParams) -> None:
        """Another sampling; holds from the next answer on."""
        options = overrides_json(self._settings.values.sampling_params(), sampling)
        self._change(lambda db: chats.set_sampling(db, chat_id, options), lambda chat: self.chats_changed.emit())

    def sampling(self, chat: ChatRow) -> SamplingParams:
        """The sampling of a chat."""
        return sampling_of(self._settings.values.sampling_params(), chat.sampling_json)

    def delete_chat(self, chat_id: int) -> None:
        """Removes a chat; `undoable` tells how to take it back."""
        self.stop(chat_id)

        def restore() -> None:
            self._change(lambda db: chats.restore_chat(db, chat_id), lambda row: self.chats_changed.emit())

        def deleted(row: ChatRow) -> None:
            self.stop(chat_id)
            self.chats_changed.emit()
            self.undoable.emit(Undo(filled(tr("Chats", "“%1” deleted"), row.title), restore))

        self._change(lambda db: chats.delete_chat(db, chat_id), deleted)

    def delete_message(self, message_id: int) -> None:
        """Removes a message and what follows it; `undoable` tells how to take it back."""
        row = self.row(message_id)
        if row is None:
            return
        self.stop(row.chat_id)

        def deleted(removed: chats.Removed) -> None:
            def restore() -> None:
                self._change(lambda db: chats.restore_messages(db, removed), lambda chat: self.branch_changed.emit(chat.id))

            self.branch_changed.emit(removed.chat_id)
            self.undoable.emit(Undo(tr("Chats", "%n message(s) deleted", len(removed.message_ids)), restore))

        self._change(lambda db: chats.delete_message(db, message_id), deleted)

    def count_context(self, chat_id: int) -> None:
        """Has the tokens of the shown branch told by `context_used`, at once and again when they are counted."""
        live = next((live for live in self._live.values() if live.row.chat_id == chat_id), None)
        if live is None:
            self.context.count(chat_id)
        else:
            self.context.tell(chat_id, live.n_context)

    def close(self) -> None:
        """Notes the answers under way as interrupted: the next start offers to continue them."""
        for live in self._live.values():
            live.interrupt()
            self._store.journal(live.journalled())
        self._live.clear()

    # --- inside ------------------------------------------------------------------------------------------------------

    def row(self, message_id: int) -> MessageRow | None:
        """The row, or None when it was deleted in the meantime."""
        try:
            return self.shown(self._store.message(message_id))
        except chats.NoSuchRow:
            return None

    def _change(
        self, job: Callable[[sqlite3.Connection], T], success: Callable[[T], None], draft: str = "", chat_id: int | None = None
    ) -> None:
        def failed(error: UserFacingError) -> None:
            self.troubled.emit(Trouble(str(error), draft, chat_id))

        self._ui.deliver(self._store.change(job), success, failed)

    def _start(self, chat_id: int | None, save: Callable[[sqlite3.Connection], Turn], draft: str = "") -> None:
        """Saves the question and the empty answer in one transaction; only then the engine hears of it."""
        self._starting.add(chat_id)

        def begun(turn: Turn) -> None:
            self._starting.discard(chat_id)
            live = LiveAnswer(turn.answer, self._bridge.new_id())
            self._live[turn.answer.id] = live
            self.turn_begun.emit(turn)
            self._generate(live)

        def failed(error: UserFacingError) -> None:
            self._starting.discard(chat_id)
            self.troubled.emit(Trouble(str(error), draft, chat_id))

        self._ui.deliver(self._store.change(save), begun, failed)

    def _generate(self, live: LiveAnswer, *, continue_last: bool = False) -> None:
        row = live.row
        up_to = row.id if continue_last else row.parent_id
        try:
            chat = self._store.chat(row.chat_id)
            rows = self._store.branch_to(up_to) if up_to is not None else ()
        except chats.NoSuchRow:
            # Deleted while the question was being saved: nobody waits for the answer, the row is as if stopped at once.
            self._live.pop(row.id, None)
            self._store.journal(replace(live.journalled(), status="stopped"))
            self.chats_changed.emit()
            return
        self._live[row.id] = live
        command = Generate(
            live.request_id,
            messages=conversation(chat.system_prompt, sent_rows(rows, chat.seen_from)),
            sampling=self.sampling(chat),
            continue_last=continue_last,
        )
        self._store.journal(live.journalled())
        self.updated.emit(row)
        self.chats_changed.emit()
        op = Op(self._bridge, command)
        op.on(Queued, lambda _: self._on_queued(live))
        op.on(PrefillProgress, lambda event: self._on_prefill(live, event))
        op.on(AnswerOpened, lambda event: setattr(live, "opening", event.text))
        op.on(TokenDelta, lambda event: self._on_delta(live, event))
        op.success(lambda event: self._on_end(live, event)).failure(lambda event: self._on_end(live, event)).run()

    def _on_queued(self, live: LiveAnswer) -> None:
        if live.has_begun:  # it was paused in its midst
            self.figures.emit(live.row.id, None, live.row.figures.n_tokens)
            self.waits.emit(tr("Chats", "The cache is full: the answer that began last goes on when another one has ended."))

    def _on_prefill(self, live: LiveAnswer, event: PrefillProgress) -> None:
        live.note_prompt(event.total)
        self.prefill.emit(live.row.id, event.done, event.total, live.prefill_tok_s(event))
        self.context.tell(live.row.chat_id, event.done)

    def _on_delta(self, live: LiveAnswer, event: TokenDelta) -> None:
        had_thought = live.thought is not None
        added = live.add(event)
        self._store.journal(live.journalled())
        self.text_added.emit(live.row.id, added)
        self.figures.emit(live.row.id, event.decode_tok_s, live.row.figures.n_tokens)
        self.context.tell(live.row.chat_id, live.n_context)
        if live.thought is not None and not had_thought:
            self.thought.emit(live.row.id, *live.thought)

    def _on_end(self, live: LiveAnswer, event: Finished | Failed) -> None:
        model = self._bridge.state.model
        live.end(event, 0 if model is None else model.n_ctx)
        self._store.journal(live.journalled())
        if event.usage.experts is not None and model is not None:
            self._experts.note(live.row.id, model.path, event.usage.experts)
        del self._live[live.row.id]
        self.updated.emit(live.row)
        self.chats_changed.emit()
        if live.n_context:
            self.context.tell(live.row.chat_id, live.n_context)
        else:
            self.count_context(live.row.chat_id)

    def _model_path(self) -> str:
        model = self._bridge.state.model
        return "" if model is None else model.path


def _trim(db: sqlite3.Connection, chat_id: int, seen_from: int | None, newest: int | None) -> None:
    if seen_from is not None:
        chats.set_seen_from(db, chat_id, newest if seen_from == NEW_MESSAGE else seen_from)


def _begin(db: sqlite3.Connection, chat_id: int, parent_id: int | None, question: MessageRow | None, model_path: str) -> Turn:
    answer = chats.add_message(db, chat_id, parent_id, "assistant", "", "streaming")
    if model_path:
        chats.set_model(db, chat_id, model_path)
    return Turn(chats.chat(db, chat_id), question, answer)
