"""The context in the window: live figures, the question before a prompt that does not fit, and the ways out."""

from __future__ import annotations

from app.store import chats
from engine.api.commands import Generate, LoadModel
from tests.app.windows.conftest import Stage
from tests.helpers.fake_engine import Fail, Prefill, Stall, Tokens

LONG = "word " * 100


def fill(stage: Stage, n_turns: int = 10) -> int:
    """A chat near the end of its context, shown."""
    stage.load()

    def job(db: object) -> int:
        chat = chats.add_chat(db, "long")  # type: ignore[arg-type]
        leaf = None
        for i in range(n_turns * 2):
            role = "user" if i % 2 == 0 else "assistant"
            leaf = chats.add_message(db, chat.id, leaf, role, LONG).id  # type: ignore[arg-type]
        return chat.id

    chat_id = stage.parts.store.change(job).result(5)
    stage.controller.refresh_list()
    stage.controller.open_chat(chat_id)
    return chat_id


def sent(stage: Stage) -> list[int]:
    """How many messages each request had."""
    return [len(command.messages or ()) for command in stage.engine.sent(Generate) if isinstance(command, Generate)]


def ask_too_much(stage: Stage) -> int:
    """Sends a message that does not fit; the card is shown."""
    chat_id = fill(stage)
    stage.send("What now?", wait=False)
    stage.qtbot.waitUntil(stage.window.page.context_card.isVisible)
    return chat_id


def test_ring_and_side_panel_grow_while_an_answer_is_written(stage: Stage) -> None:
    stage.load()
    page = stage.window.page
    stage.engine.answers = [(Prefill(100, 50), Tokens(("a ",) * 20), Stall(60))]
    stage.send("go", wait=False)
    stage.qtbot.waitUntil(lambda: page.side_panel._used == 120)
    assert page.header._context._text == "120 / 2k"
    stage.controller.stop()
    stage.settle()
    assert page.header._context._text == "120 / 2k"
    first = stage.controller.chat_id
    stage.controller.new_chat()
    assert page.header._context._text == "0 / 2k"
    assert first is not None
    stage.controller.open_chat(first)
    assert page.header._context._text == "120 / 2k"


def test_a_message_that_does_not_fit_is_asked_about_before_it_is_sent(stage: Stage) -> None:
    ask_too_much(stage)
    page = stage.window.page
    assert "2,048" in page.context_card.accessibleName()
    assert "oldest messages" in page.context_card.accessibleName()
    assert page.composer.text() == "What now?"
    assert sent(stage) == []
    assert len(stage.shown()) == 20
    page.context_card.dismissed.emit()
    assert not page.context_card.isVisible()
    assert page.composer.text() == "What now?"
    assert not stage.controller.is_busy()


def test_trim_oldest_sends_the_rest_and_says_so_in_the_transcript(stage: Stage) -> None:
    chat_id = ask_too_much(stage)
    page = stage.window.page
    page.context_card.trim_requested.emit()
    stage.qtbot.waitUntil(lambda: bool(sent(stage)))
    stage.settle()
    assert sent(stage)[0] < 15
    assert len(stage.shown()) == 22
    assert page.composer.text() == ""
    assert not page.context_card.isVisible()
    seen_from = stage.parts.store.chat(chat_id).seen_from
    assert seen_from is not None
    rows = stage.parts.store.messages(chat_id)
    before = next(rows[i - 1].id for i, row in enumerate(rows) if row.id == seen_from)
    page.transcript._show_index(page.transcript._where[before])
    view = page.transcript._views[before]
    assert view.accessibleDescription() == "The model sees the chat from here on"
    n_boundaries = sum(view._boundary for view in page.transcript._views.values())
    assert n_boundaries == 1


def test_a_trimmed_chat_is_trimmed_again_without_asking(stage: Stage) -> None:
    chat_id = ask_too_much(stage)
    stage.window.page.context_card.trim_requested.emit()
    stage.qtbot.waitUntil(lambda: bool(sent(stage)))
    stage.settle()
    first = stage.parts.store.chat(chat_id).seen_from
    stage.send("word " * 900)
    stage.qtbot.waitUntil(lambda: len(sent(stage)) == 2)
    assert stage.parts.store.chat(chat_id).seen_from != first
    assert not stage.window.page.context_card.isVisible()


def test_load_with_a_longer_context_then_answer(stage: Stage) -> None:
    ask_too_much(stage)
    stage.window.page.context_card.longer_requested.emit()
    stage.qtbot.waitUntil(lambda: bool(sent(stage)))
    stage.settle()
    load = stage.engine.sent(LoadModel)[-1]
    assert isinstance(load, LoadModel)
    assert load.options.n_ctx == 4096
    assert sent(stage) == [21]


def test_start_a_new_chat_instead(stage: Stage) -> None:
    chat_id = ask_too_much(stage)
    stage.window.page.context_card.new_chat_requested.emit()
    stage.qtbot.waitUntil(lambda: bool(sent(stage)))
    stage.settle()
    assert stage.controller.chat_id != chat_id
    assert sent(stage) == [1]
    assert stage.window.page.composer.text() == ""


def test_typing_or_another_chat_takes_the_question_away(stage: Stage) -> None:
    ask_too_much(stage)
    page = stage.window.page
    page.composer.set_text("What now")
    assert not page.context_card.isVisible()
    stage.send("What now?", wait=False)
    stage.qtbot.waitUntil(page.context_card.isVisible)
    stage.controller.new_chat()
    assert not page.context_card.isVisible()


def test_an_answer_that_failed_for_a_full_context_offers_to_make_room(stage: Stage) -> None:
    stage.load()
    stage.engine.answers = [(Fail("ContextFull", "the prompt takes 3000 tokens, the context holds 2048"),)]
    stage.send("go")
    page = stage.window.page
    answer = stage.controller.last_answer()
    assert answer is not None
    assert (answer.status, answer.error_kind) == ("error", "ContextFull")
    view = page.transcript._views[answer.id]
    assert view._error is not None
    assert view._error._button.text() == "Make room…"
    # By now it fits: the answer is simply tried again.
    page.transcript.error_action_requested.emit(answer.id)
    stage.qtbot.waitUntil(lambda: len(sent(stage)) == 2)
    stage.settle()
    assert stage.shown()[-1][2] == "done"


def test_a_model_that_changed_is_loaded_again_before_the_next_try(stage: Stage) -> None:
    stage.load()
    stage.engine.answers = [(Fail("ModelChanged", "the model file changed on disk"),)]
    stage.send("go")
    answer = stage.controller.last_answer()
    assert answer is not None
    stage.window.page.transcript.error_action_requested.emit(answer.id)
    stage.qtbot.waitUntil(lambda: len(sent(stage)) == 2)
    stage.settle()
    assert len(stage.engine.sent(LoadModel)) == 2
    assert stage.shown()[-1][2] == "done"


def test_after_a_crash_the_chat_with_the_cut_off_answer_is_opened(stage: Stage) -> None:
    chat_id = fill(stage, 1)
    leaf = stage.parts.store.chat(chat_id).leaf_id

    def cut_off(db: object) -> None:
        question = chats.add_message(db, chat_id, leaf, "user", "q")  # type: ignore[arg-type]
        chats.add_message(db, chat_id, question.id, "assistant", "half", "streaming")  # type: ignore[arg-type]
        chats.interrupt_streaming(db)  # type: ignore[arg-type]

    stage.parts.store.change(cut_off).result(5)
    stage.controller.new_chat()
    stage.window.start(None, load_last=True)
    assert stage.controller.chat_id == chat_id
    assert stage.shown()[-1] == ("assistant", "half", "interrupted")


def test_stop_while_the_prompt_is_counted_gives_the_text_back(stage: Stage) -> None:
    fill(stage)
    stage.send("What now?", wait=False)
    stage.controller.stop()
    page = stage.window.page
    assert page.composer.text() == "What now?"
    stage.qtbot.wait(100)
    assert not page.context_card.isVisible()
    assert sent(stage) == []
    assert len(stage.shown()) == 20
