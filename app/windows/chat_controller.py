"""ChatController: joins the widgets of the chat page to the operations. It knows which chat is shown; it paints nothing."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QGuiApplication

from app.bridge.engine_bridge import EngineBridge
from app.bridge.engine_state import EngineState
from app.bridge.throttle import Throttle
from app.chat.chat_page import ChatPage
from app.chat.sampling_panel import preset_label
from app.i18n import tr
from app.ops.chat_ops import ChatOps, Trouble, Turn
from app.ops.context_ops import ContextUse, Prompt
from app.ops.model_files import name_and_quant
from app.ops.model_ops import ModelOps
from app.qtmodels.chat_list import ChatListModel
from app.settings.store import SettingsStore
from app.store.chat_store import ChatStore
from app.store.rows import MessageRow
from app.windows.chat_options import ChatOptions
from app.windows.context_controller import ContextController, Send
from app.windows.error_actions import ErrorActions
from app.windows.links import ask_and_open
from engine.api.values import ModelInfo, SamplingParams

SPEED_MS = 250
"""The curve of the side panel takes a point this often."""


class ChatController(QObject):
    """Signals: notice(sentence) for the toast; undoable(Undo); shown_changed() when another chat or state is shown."""

    notice = Signal(str)
    undoable = Signal(object)
    shown_changed = Signal()

    def __init__(
        self,
        page: ChatPage,
        store: ChatStore,
        chats: ChatOps,
        models: ModelOps,
        bridge: EngineBridge,
        settings: SettingsStore,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._page = page
        self._store = store
        self._chats = chats
        self._models = models
        self._bridge = bridge
        self._settings = settings
        self._list = ChatListModel(self)
        self._query = ""
        self._chat_id: int | None = None
        self._awaits_turn = False
        self._state: EngineState | None = None
        self._show_speed = Throttle(SPEED_MS, page.side_panel.set_decode, self)
        self._drafts: dict[int | None, str] = {}
        self.options = ChatOptions(page.composer, store, chats, settings, self)
        self._context = ContextController(page, chats.context, models, bridge, self)
        self.errors = ErrorActions(page.transcript, chats, models, self._after_error, self)
        page.list.set_model(self._list)
        self._connect()
        self.refresh_list()
        self._show_options()
        self._on_state(bridge.state)

    def _connect(self) -> None:
        page, chats = self._page, self._chats
        page.list.new_requested.connect(self.new_chat)
        page.list.opened.connect(self.open_chat)
        page.list.rename_requested.connect(chats.rename)
        page.list.delete_requested.connect(chats.delete_chat)
        page.list.search_changed.connect(self._on_search_changed)
        page.transcript.regenerate_requested.connect(self._on_regenerate)
        page.transcript.edit_requested.connect(self._on_edit)
        page.transcript.delete_requested.connect(chats.delete_message)
        page.transcript.continue_requested.connect(self._on_continue)
        page.transcript.branch_requested.connect(chats.switch_branch)
        page.transcript.link_clicked.connect(self._on_link)
        page.composer.send_requested.connect(self.send)
        page.composer.stop_requested.connect(self.stop)
        page.composer.edit_last_requested.connect(self._on_edit_last)
        page.composer.sampling_requested.connect(self.options.open_sampling)
        page.composer.system_prompt_requested.connect(self.options.open_system_prompt)
        self.options.changed.connect(self._show_options)
        self._context.notice.connect(self.notice)
        self._context.new_chat_requested.connect(self._on_new_chat_instead)
        page.composer.text_changed.connect(self._context.drop_asked)
        page.header.stop_loading_requested.connect(self._models.cancel_loading)
        chats.chats_changed.connect(self.refresh_list)
        chats.chats_changed.connect(self._show_options)
        chats.turn_begun.connect(self._on_turn)
        chats.branch_changed.connect(self._on_branch_changed)
        chats.updated.connect(self._on_updated)
        chats.text_added.connect(page.transcript.append_text)
        chats.prefill.connect(page.transcript.set_prefill)
        chats.figures.connect(page.transcript.set_live_figures)
        chats.thought.connect(page.transcript.set_think_figures)
        chats.context_used.connect(self._on_context)
        chats.undoable.connect(self.undoable)
        chats.troubled.connect(self._on_trouble)
        chats.waits.connect(self.notice)
        self._models.ready.connect(self._on_model_ready)
        self._bridge.state_changed.connect(self._on_state)

    # --- what is shown -----------------------------------------------------------------------------------------------

    @property
    def chat_id(self) -> int | None:
        """The chat that is shown; None for a new one."""
        return self._chat_id

    def new_chat(self) -> None:
        """Shows an empty chat; it is made with the first message."""
        self._show(None)
        self._page.composer.focus()

    def open_chat(self, chat_id: int) -> None:
        """Shows a chat at its end."""
        if chat_id != self._chat_id:
            self._show(chat_id)

    def last_answer(self) -> MessageRow | None:
        """The newest answer of the shown branch."""
        if self._chat_id is None:
            return None
        rows = self._store.messages(self._chat_id)
        return next((self._chats.shown(row) for row in reversed(rows) if row.role == "assistant"), None)

    def is_busy(self) -> bool:
        """True while the shown chat is being answered."""
        return self._chats.is_busy(self._chat_id)

    def refresh_list(self) -> None:
        """Shows the chats anew: titles, order, which of them are being answered."""
        rows = self._store.chats()
        is_gone = self._chat_id is not None and all(row.id != self._chat_id for row in rows)
        if self._query:
            found = {hit.chat_id for hit in self._store.search(self._query)}
            rows = tuple(row for row in rows if row.id in found)
        self._list.set_rows(rows)
        self._list.set_streaming(self._chats.streaming_chats())
        if is_gone:
            self._drafts.pop(self._chat_id, None)
            self._chat_id = None
            self._show(None)
            return
        self._page.list.set_current(self._chat_id)
        self._show_busy()

    def _show(self, chat_id: int | None) -> None:
        self._drafts[self._chat_id] = self._page.composer.text()
        self._chat_id = chat_id
        self._awaits_turn = False
        self._context.drop()
        self._page.composer.set_text(self._drafts.pop(chat_id, ""))
        self._page.list.set_current(chat_id)
        self.options.show_for(chat_id)
        self._show_branch()
        self._show_busy()
        self.shown_changed.emit()

    def _show_branch(self) -> None:
        rows: tuple[MessageRow, ...] = ()
        if self._chat_id is not None:
            rows = tuple(self._chats.shown(row) for row in self._store.messages(self._chat_id))
        self._page.transcript.set_messages(rows)
        self._show_seen_from()
        self._page.transcript.scroll_to_end()
        self._page.set_conversation_shown(bool(rows))
        if self._chat_id is not None:
            self._chats.count_context(self._chat_id)
        else:
            self._show_context(0)

    def _show_seen_from(self) -> None:
        self._page.transcript.set_seen_from(None if self._chat_id is None else self._store.chat(self._chat_id).seen_from)

    def _show_options(self) -> None:
        self._page.composer.set_preset_label(preset_label(self.options.sampling()))
        self._page.composer.set_system_prompt(self.options.system_prompt())

    def _show_busy(self) -> None:
        if self.is_busy() or self._awaits_turn:
            self._page.composer.set_state("busy")
        elif self._bridge.state.can_answer or self._bridge.state.loading is not None:
            self._page.composer.set_state("idle")
        else:
            self._page.composer.set_state("no_model")
        self.shown_changed.emit()

    def _show_context(self, used: int) -> None:
        model = self._bridge.state.model
        total = model.n_ctx if model is not None else 0
        self._page.header.set_context(used, total)
        self._page.side_panel.set_context(used, total)

    # --- what the user does ------------------------------------------------------------------------------------------

    def send(self, text: str) -> None:
        """Sends a message; without a model the last one is loaded first."""
        if not self._make_ready():
            self._page.composer.set_text(text)
            return
        self.options.flush()
        chat_id = self._chat_id
        sampling, prompt = self.options.new_chat_options() if chat_id is None else (None, None)
        up_to = None if chat_id is None else self._store.chat(chat_id).leaf_id

        def send(seen_from: int | None) -> None:
            if not self._chats.send(chat_id, text, sampling, prompt, seen_from):
                held()
                return
            if self._page.composer.text() == text:
                self._page.composer.set_text("")
            self._awaits_turn = True
            self._show_busy()

        def held() -> None:
            self._on_trouble(Trouble("", text, chat_id))

        self._awaits_turn = True
        self._show_busy()
        self._context.guard(Prompt(chat_id, up_to, text, self.options.system_prompt()), send, held)

    def ask(self, text: str, sampling: SamplingParams) -> None:
        """Asks in a new chat with this sampling and without a system prompt."""
        self.new_chat()
        self.options.set_sampling(sampling)
        self.options.set_system_prompt("")
        self.send(text)

    def stop(self) -> None:
        """Stops the answer of the shown chat, else the load under way."""
        if self._chat_id is not None and self._chats.is_busy(self._chat_id):
            self._chats.stop(self._chat_id)
        else:
            self._context.drop()
            self._models.cancel_loading()

    def regenerate_last(self) -> None:
        """Answers the last question again."""
        answer = self.last_answer()
        if answer is not None:
            self._on_regenerate(answer.id)

    def copy_last(self) -> None:
        """The text of the last answer to the clipboard."""
        answer = self.last_answer()
        if answer is not None:
            QGuiApplication.clipboard().setText(answer.text)
            self.notice.emit(tr("Chats", "Copied"))

    def delete_shown(self) -> None:
        """Deletes the shown chat."""
        if self._chat_id is not None:
            self._chats.delete_chat(self._chat_id)

    def refresh_options(self) -> None:
        """Shows sampling and system prompt anew, after a default changed."""
        self._show_options()

    def _make_ready(self) -> bool:
        """True when a model is loaded or loads; loads the last one with a notice otherwise."""
        state = self._bridge.state
        if state.can_answer or state.loading is not None:
            return True
        if self._models.load_default():
            self.notice.emit(tr("Models", "Loading the model that was used last; your message is answered after it."))
            return True
        self.notice.emit(tr("Models", "Choose a model first (Ctrl+L)."))
        return False

    def _on_regenerate(self, message_id: int) -> None:
        row = self._chats.row(message_id)
        if row is not None:
            up_to = row.parent_id if row.role == "assistant" else row.id
            self._answer_again(row, up_to, lambda seen_from: self._chats.regenerate(message_id, seen_from))

    def _on_edit(self, message_id: int, text: str) -> None:
        self._page.composer.focus()
        self._chats.edit(message_id, text)

    def _on_continue(self, message_id: int) -> None:
        row = self._chats.row(message_id)
        if row is not None:
            self._answer_again(row, row.id, lambda seen_from: self._chats.continue_answer(message_id, seen_from))

    def _answer_again(self, row: MessageRow, up_to: int | None, send: Send) -> None:
        if not self._chats.is_busy(row.chat_id) and self._make_ready():
            self._context.guard(Prompt(row.chat_id, up_to, "", self.options.system_prompt()), send, lambda: None)

    def _after_error(self, row: MessageRow) -> None:
        """Another answer, or the rest of one that was begun."""
        (self._on_continue if row.text else self._on_regenerate)(row.id)

    def _on_new_chat_instead(self, text: str) -> None:
        self._page.composer.set_text("")
        self.new_chat()
        if text:
            self.send(text)

    def _on_edit_last(self) -> None:
        if self._chat_id is None:
            return
        rows = self._store.messages(self._chat_id)
        question = next((row for row in reversed(rows) if row.role == "user"), None)
        if question is not None:
            self._page.transcript.edit_message(question.id)

    def _on_search_changed(self, query: str) -> None:
        self._query = query.strip()
        self.refresh_list()

    def _on_link(self, link: str) -> None:
        if ask_and_open(link, self._page.window()) is None:
            self.notice.emit(tr("Links", "Only web and mail addresses can be opened."))

    # --- what changed ------------------------------------------------------------------------------------------------

    def _on_turn(self, turn: Turn) -> None:
        if self._chat_id is None and self._awaits_turn:
            self._chat_id = turn.chat.id
            self.options.forget_new()
            self.options.show_for(turn.chat.id)
        if turn.chat.id != self._chat_id:
            return
        self._awaits_turn = False
        if turn.question is not None and turn.question.position[1] == 1:
            self._page.set_conversation_shown(True)
            self._page.transcript.append(turn.question)
            self._page.transcript.append(turn.answer)
        else:
            self._show_branch()
        self._show_seen_from()
        self.shown_changed.emit()

    def _on_branch_changed(self, chat_id: int) -> None:
        if chat_id == self._chat_id:
            self._show_branch()
        self.refresh_list()

    def _on_updated(self, row: MessageRow) -> None:
        self._page.transcript.update_message(row)
        if row.status != "streaming" and row.figures.decode_tok_s is not None:
            self._page.side_panel.set_decode(row.figures.decode_tok_s)
            self._page.side_panel.set_decode(None)
        if row.chat_id == self._chat_id and row.status in ("done", "error"):
            said = tr("Chats", "Answer complete") if row.status == "done" else row.error
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self._page.transcript, said))

    def _on_context(self, use: ContextUse) -> None:
        if use.chat_id == self._chat_id:
            self._show_context(use.used)

    def _on_trouble(self, trouble: Trouble) -> None:
        """The text goes back to where it was written, unless something else is there by now."""
        self._awaits_turn = False
        if trouble.draft and trouble.chat_id == self._chat_id and not self._page.composer.text():
            self._page.composer.set_text(trouble.draft)
        elif trouble.draft:
            self._drafts.setdefault(trouble.chat_id, trouble.draft)
        if trouble.sentence:
            self.notice.emit(trouble.sentence)
        self._show_busy()

    def _on_model_ready(self, info: ModelInfo) -> None:
        if self._chat_id is not None:
            self._chats.count_context(self._chat_id)
        else:
            self._show_context(0)

    def _on_state(self, state: EngineState) -> None:
        """While an answer streams this comes thirty times a second: only the header follows each of them."""
        before, self._state = self._state, state
        self._page.header.set_engine_state(state)
        self._show_speed(state.tok_s)
        if before is None or before.model != state.model:
            self._show_model(state.model)
        if before is None or before.kind != state.kind:
            self._page.side_panel.set_state(state.kind.replace("_", " "))
            self._show_busy()

    def _show_model(self, model: ModelInfo | None) -> None:
        name = "" if model is None else name_and_quant(Path(model.path).stem)[0]
        if model is None:
            self._page.header.set_model("", "", 0)
            self._page.header.set_context(0, 0)
        else:
            self._page.header.set_model(name, model.quant, model.file_bytes, model.exact_formats)
        self._page.composer.set_model_name(name)
