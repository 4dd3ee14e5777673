"""The screens of the picture book, each a window of 1440 x 900 filled from the script."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from PySide6.QtGui import QStandardItem, QStandardItemModel
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.bridge.engine_state import EngineState
from app.chat.chat_page import ChatPage
from app.qtmodels.chat_list import ChatListRole
from app.shots import script
from app.welcome.welcome_page import MachineSummary, ModelChoice, WelcomePage
from app.widgets.rail import Rail
from app.windows import rail_pages

SIZE = (1440, 900)


class Frame(QWidget):
    """The rail and one page. `pending()` tells whether the page still waits for its worker."""

    def __init__(self, page: QWidget, current: str = "chat") -> None:
        super().__init__()
        self.page = page
        rail = Rail()
        rail_pages.fill(rail)
        rail.set_current(current)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(rail)
        row.addWidget(page, 1)
        self.resize(*SIZE)

    def pending(self) -> bool:
        """Whether formulas or colours are still being made."""
        return isinstance(self.page, ChatPage) and self.page.transcript.pending > 0

    def shut_down(self) -> None:
        """End the page's worker."""
        if isinstance(self.page, ChatPage):
            self.page.shut_down()


def _chat_model(page: ChatPage, streaming: bool, many: int = 0) -> QStandardItemModel:
    model = QStandardItemModel(page)
    chat_id = 0
    titles = [*script.CHATS, ("Older", tuple(f"Conversation {i + 1}" for i in range(many)))] if many else list(script.CHATS)
    for section, names in titles:
        for name in names:
            chat_id += 1
            item = QStandardItem(name)
            item.setData(chat_id, ChatListRole.ID)
            item.setData(name, ChatListRole.TITLE)
            item.setData(section, ChatListRole.SECTION)
            item.setData(streaming and chat_id == 1, ChatListRole.STREAMING)
            model.appendRow(item)
    return model


def chat_page(streaming: bool = False, many: int = 0) -> ChatPage:
    """A chat page with its list, model and readings."""
    page = ChatPage()
    page.list.set_model(_chat_model(page, streaming, many))
    page.list.set_current(1)
    page.header.set_model("SmolLM2 135M Instruct", "Q4_1", 98_000_000)
    page.header.set_engine_state(EngineState("ready"))
    page.header.set_context(1210, 8192)
    page.composer.set_model_name("SmolLM2")
    page.composer.set_preset_label("Balanced · 0.7")
    page.side_panel.set_figures(script.side_figures())
    page.side_panel.set_context(1210, 8192)
    page.side_panel.set_state("ready")
    return page


def streaming() -> QWidget:
    """The conversation of the reference picture."""
    page = chat_page(streaming=True)
    page.header.set_model("DeepSeek-V3.1 671B", "Q4_K_M", 405 * script.GB)
    page.header.set_engine_state(EngineState("generating", tok_s=12.1))
    page.header.set_context(8214, 65536)
    page.composer.set_model_name("DeepSeek-V3.1")
    page.composer.set_preset_label("Precise · 0.6")
    page.composer.set_state("busy")
    page.transcript.set_messages(script.streaming())
    page.transcript.set_think_figures(2, 6.2, 214)
    page.set_conversation_shown(True)
    page.side_panel.set_decode_history(script.decode_rates())
    page.side_panel.set_figures(script.side_figures(hybrid=True))
    page.side_panel.set_more_offered(True)
    page.side_panel.set_context(8214, 65536, 1600)
    page.side_panel.set_state("generating")
    return Frame(page)


def answer() -> QWidget:
    """A finished answer with formulas, lists, quote, branches."""
    page = chat_page()
    page.transcript.set_messages(script.long_answer())
    page.set_conversation_shown(True)
    return Frame(page)


def empty() -> QWidget:
    """A new chat."""
    page = chat_page()
    page.list.set_current(None)
    page.header.set_context(0, 8192)
    page.side_panel.set_context(0, 8192)
    return Frame(page)


def no_model() -> QWidget:
    """Nothing is loaded."""
    page = chat_page()
    page.list.set_current(None)
    page.header.set_model("", "", 0)
    page.header.set_engine_state(EngineState("no_model"))
    page.header.set_context(0, 0)
    page.composer.set_model_name("")
    page.composer.set_state("no_model")
    page.side_panel.set_context(0, 0)
    page.side_panel.set_state("no_model")
    return Frame(page)


def loading() -> QWidget:
    """A model is being read."""
    page = chat_page()
    page.list.set_current(None)
    page.header.set_model("DeepSeek-V3.1 671B", "Q4_K_M", 405 * script.GB)
    page.header.set_engine_state(EngineState("loading", 166 * script.GB, 405 * script.GB, "weights"))
    page.header.set_context(0, 0)
    page.side_panel.set_state("loading")
    return Frame(page)


def errors() -> QWidget:
    """Answers that were stopped, interrupted, and failed."""
    page = chat_page()
    page.header.set_engine_state(EngineState("error", detail="The context is full"))
    page.header.set_context(8192, 8192)
    page.side_panel.set_context(8192, 8192)
    page.transcript.set_messages(script.ended_badly())
    page.set_conversation_shown(True)
    page.toast.show_message("Chat deleted", "Undo", lambda: None)
    return Frame(page)


def prefill() -> QWidget:
    """The prompt is being read."""
    page = chat_page(streaming=True)
    page.header.set_engine_state(EngineState("prefill", 1024, 2114))
    page.transcript.set_messages(script.prefill())
    page.transcript.set_prefill(2, 1024, 2114, 412.0)
    page.set_conversation_shown(True)
    page.composer.set_state("busy")
    page.side_panel.set_state("prefill")
    return Frame(page)


def long_list() -> QWidget:
    """Many chats and a long conversation, read somewhere in the middle."""
    page = chat_page(many=60)
    page.transcript.set_messages(script.long_history(200))
    page.set_conversation_shown(True)
    return Frame(page)


def first_run() -> QWidget:
    """What a person sees first."""
    page = WelcomePage()
    page.set_machine(
        MachineSummary(
            cpu_name="EPYC 7543",
            n_cores=32,
            isa="AVX2",
            ram_total_bytes=256 * script.GB,
            ram_free_bytes=212 * script.GB,
            disk_free_bytes=1400 * script.GB,
            disk_path="/home/you/models",
        )
    )
    page.set_models(
        (ModelChoice("smollm2", "SmolLM2 135M", "Q4_1", 98_000_000, "Included. Checks that everything works.", True),)
    )
    return Frame(page)


PAGES: Mapping[str, Callable[[], QWidget]] = {
    "first_run": first_run,
    "chat_empty": empty,
    "chat_no_model": no_model,
    "chat_loading": loading,
    "chat_streaming": streaming,
    "chat_answer": answer,
    "chat_prefill": prefill,
    "chat_errors": errors,
    "chat_long": long_list,
}
