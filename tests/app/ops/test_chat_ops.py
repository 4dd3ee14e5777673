"""ChatOps over a scripted engine: every ending of an answer, branches, undo, and what a failing store does."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from app.ops.context_ops import ContextUse
from app.store.chat_store import ChatStore
from engine.api.commands import Cancel, CountTokens, Generate
from engine.api.events import Queued
from engine.api.values import ChatMessage, SamplingParams
from tests.app.ops.conftest import Bench
from tests.helpers.fake_engine import OUT_OF_MEMORY, Fail, Opened, Prefill, Stall, Tokens, words


def last_generate(bench: Bench) -> Generate:
    command = bench.engine.sent(Generate)[-1]
    assert isinstance(command, Generate)
    return command


def test_a_question_is_answered_and_kept(bench: Bench) -> None:
    bench.load()
    turn = bench.ask("What is this?\nIn short.")
    assert bench.shown(turn.chat.id) == [("user", "What is this?\nIn short.", "done"), ("assistant", "Hello, world!", "done")]
    assert bench.store.chat(turn.chat.id).title == "What is this?"
    assert bench.store.chat(turn.chat.id).model_path == "/m.gguf"
    figures = bench.store.messages(turn.chat.id)[-1].figures
    assert (figures.n_tokens, figures.n_prompt, figures.prefill_tok_s) == (4, 32, 250.0)
    assert bench.contexts[-1] == ContextUse(turn.chat.id, 36, 2048)


def test_the_question_is_on_disk_before_the_engine_hears_of_it(bench: Bench) -> None:
    bench.load()
    seen: list[int] = []
    submit = bench.engine.submit

    def spy(command: object) -> None:
        if isinstance(command, Generate):
            db = sqlite3.connect(bench.store.path)
            seen.append(db.execute("SELECT count(*) FROM message WHERE role = 'user'").fetchone()[0])
            db.close()
        submit(command)  # type: ignore[arg-type]

    bench.engine.submit = spy  # type: ignore[method-assign]
    bench.ask("one")
    assert seen == [1]


def test_the_next_question_carries_the_conversation_and_the_settings(bench: Bench) -> None:
    bench.settings.set("chat.system_prompt", "Be short.")
    bench.settings.set("sampling.temperature", 0.0)
    bench.load()
    chat = bench.ask("one").chat.id
    bench.ask("two", chat)
    command = last_generate(bench)
    assert command.messages == (
        ChatMessage("system", "Be short."),
        ChatMessage("user", "one"),
        ChatMessage("assistant", "Hello, world!"),
        ChatMessage("user", "two"),
    )
    assert command.sampling.temperature == 0.0


def test_stop_keeps_the_text_and_continue_goes_on_in_the_same_message(bench: Bench) -> None:
    bench.load()
    bench.engine.answers = [(Prefill(), Tokens(("Once ", "upon ")), Stall(60)), (Prefill(), Tokens(("a ", "time")))]
    turn = bench.ask("story", wait=False)
    bench.qtbot.waitUntil(lambda: bench.chats.shown(turn.answer).text == "Once upon ")
    assert not bench.chats.send(turn.chat.id, "impatient")
    bench.chats.stop(turn.chat.id)
    bench.settle()
    assert bench.shown(turn.chat.id)[-1] == ("assistant", "Once upon ", "stopped")
    bench.chats.continue_answer(turn.answer.id)
    bench.settle()
    assert bench.shown(turn.chat.id) == [("user", "story", "done"), ("assistant", "Once upon a time", "done")]
    assert last_generate(bench).continue_last
    assert (last_generate(bench).messages or ())[-1] == ChatMessage("assistant", "Once upon ")
    assert bench.store.message(turn.answer.id).figures.n_tokens == 4


def test_an_answer_that_is_paused_says_so_and_shows_no_speed_meanwhile(bench: Bench) -> None:
    bench.load()
    bench.engine.answers = [(Prefill(), Tokens(("Once ",)), Stall(60))]
    told: list[str] = []
    rates: list[float | None] = []
    bench.chats.waits.connect(told.append)
    bench.chats.figures.connect(lambda _, rate, n: rates.append(rate))
    turn = bench.ask("story", wait=False)
    bench.qtbot.waitUntil(lambda: bench.chats.shown(turn.answer).text == "Once ")
    assert not told
    bench.engine.tell(Queued(last_generate(bench).request_id, 1))
    bench.qtbot.waitUntil(lambda: bool(told))
    assert told[0].startswith("The cache is full") and rates[-1] is None
    bench.chats.stop(turn.chat.id)
    bench.settle()
    assert bench.shown(turn.chat.id)[-1] == ("assistant", "Once ", "stopped")


def test_an_answer_goes_on_with_the_sampling_that_was_chosen_last(bench: Bench) -> None:
    bench.load()
    bench.engine.answers = [(Prefill(), Tokens(("Once ",)), Stall(60)), (Prefill(), Tokens(("more",)))]
    turn = bench.ask("story", wait=False)
    bench.qtbot.waitUntil(lambda: bench.chats.shown(turn.answer).text == "Once ")
    bench.chats.stop(turn.chat.id)
    bench.settle()
    bench.chats.set_sampling(turn.chat.id, SamplingParams(max_tokens=7))
    bench.chats.continue_answer(turn.answer.id)
    assert bench.chats.is_busy(turn.chat.id)
    bench.settle()
    assert last_generate(bench).sampling.max_tokens == 7


def test_an_error_stands_in_the_message_and_the_question_stays(bench: Bench) -> None:
    bench.load()
    bench.engine.answers = [(Prefill(), Tokens(("half ",)), OUT_OF_MEMORY)]
    turn = bench.ask("big")
    row = bench.store.messages(turn.chat.id)[-1]
    assert (row.status, row.text, row.error) == ("error", "half ", OUT_OF_MEMORY.message)
    bench.chats.regenerate(turn.answer.id)
    bench.settle()
    row = bench.store.messages(turn.chat.id)[-1]
    assert (row.status, row.text, row.position) == ("done", "Hello, world!", (1, 2))


def test_without_a_model_the_answer_says_so(bench: Bench) -> None:
    turn = bench.ask("anyone?")
    row = bench.store.messages(turn.chat.id)[-1]
    assert (row.status, row.error) == ("error", "No model is loaded; choose one first.")


def test_edit_makes_a_branch_and_the_old_one_can_be_shown_again(bench: Bench) -> None:
    bench.load()
    turn = bench.ask("first")
    assert turn.question is not None
    bench.chats.edit(turn.question.id, "second")
    bench.qtbot.waitUntil(lambda: len(bench.turns) == 2)
    bench.settle()
    assert bench.shown(turn.chat.id)[0] == ("user", "second", "done")
    assert (last_generate(bench).messages or ())[0].content == "second"
    second = bench.store.messages(turn.chat.id)[0]
    with bench.qtbot.waitSignal(bench.chats.branch_changed):
        bench.chats.switch_branch(second.id, -1)
    assert bench.shown(turn.chat.id)[0] == ("user", "first", "done")
    with bench.qtbot.waitSignal(bench.chats.branch_changed):
        bench.chats.edit(turn.answer.id, "my own words")
    assert bench.shown(turn.chat.id)[-1] == ("assistant", "my own words", "done")


def test_two_chats_are_answered_one_after_the_other(bench: Bench) -> None:
    bench.load()
    bench.engine.answers = [(Prefill(), words("a long answer of seven words here", tok_s=50)), (Prefill(), Tokens(("short",)))]
    first = bench.ask("one", wait=False)
    second = bench.ask("two", wait=False)
    assert bench.chats.streaming_chats() == {first.chat.id, second.chat.id}
    bench.settle()
    assert bench.shown(first.chat.id)[-1][1] == "a long answer of seven words here"
    assert bench.shown(second.chat.id)[-1][1] == "short"


def test_deleting_can_be_undone(bench: Bench) -> None:
    bench.load()
    turn = bench.ask("keep me")
    with bench.qtbot.waitSignal(bench.chats.undoable):
        bench.chats.delete_chat(turn.chat.id)
    assert bench.store.chats() == ()
    with bench.qtbot.waitSignal(bench.chats.chats_changed):
        bench.undos[-1].run()
    assert len(bench.shown(turn.chat.id)) == 2
    with bench.qtbot.waitSignal(bench.chats.undoable):
        bench.chats.delete_message(turn.answer.id)
    assert len(bench.shown(turn.chat.id)) == 1
    with bench.qtbot.waitSignal(bench.chats.branch_changed):
        bench.undos[-1].run()
    assert len(bench.shown(turn.chat.id)) == 2


def test_deleting_a_chat_stops_its_answer(bench: Bench) -> None:
    bench.load()
    bench.engine.answers = [(Prefill(), Tokens(("a",)), Stall(60))]
    turn = bench.ask("x", wait=False)
    bench.chats.delete_chat(turn.chat.id)
    bench.settle()
    assert bench.engine.sent(Cancel)


def test_a_full_disk_gives_the_text_back(bench: Bench) -> None:
    bench.load()
    db = bench.store._writer._db
    db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
    text = "precious " * 10_000
    bench.chats.send(None, text)
    bench.qtbot.waitUntil(lambda: bool(bench.troubles))
    assert bench.troubles[0].draft == text
    assert "full" in bench.troubles[0].sentence
    assert not bench.chats.is_busy(None)
    assert not bench.engine.sent(Generate)


def test_closing_while_it_answers_leaves_it_interrupted(bench: Bench) -> None:
    bench.load()
    bench.engine.answers = [(Prefill(), Tokens(("so far",)), Stall(60))]
    turn = bench.ask("x", wait=False)
    bench.qtbot.waitUntil(lambda: bench.chats.shown(turn.answer).text == "so far")
    bench.chats.close()
    bench.bridge.close()
    bench.store.close()
    again = ChatStore(Path(bench.store.path))
    assert (again.message(turn.answer.id).text, again.message(turn.answer.id).status) == ("so far", "interrupted")
    again.close()


def test_options_of_a_chat_override_the_settings(bench: Bench) -> None:
    bench.load()
    turn = bench.ask("x")
    bench.chats.set_system_prompt(turn.chat.id, "Rhyme.")
    bench.chats.set_sampling(turn.chat.id, SamplingParams(top_k=1, stop=("\n",), seed=3))
    bench.settings.set("sampling.top_p", 0.5)
    bench.ask("y", turn.chat.id)
    command = last_generate(bench)
    assert command.sampling == SamplingParams(top_k=1, stop=("\n",), seed=3, top_p=0.5)
    assert (command.messages or ())[0] == ChatMessage("system", "Rhyme.")


def test_context_is_counted_by_the_engine(bench: Bench) -> None:
    bench.load()
    turn = bench.ask("three words here")
    with bench.qtbot.waitSignal(bench.chats.context_used):
        bench.chats.count_context(turn.chat.id)
    assert isinstance(bench.engine.commands[-1], CountTokens)
    assert bench.contexts[-1].total == 2048


def test_rename_cleans_the_title_and_keeps_the_old_one_for_nothing(bench: Bench) -> None:
    turn = bench.ask("x")
    bench.chats.rename(turn.chat.id, "  ")
    with bench.qtbot.waitSignal(bench.chats.chats_changed):
        bench.chats.rename(turn.chat.id, " New \n name ")
    assert bench.store.chat(turn.chat.id).title == "New name"


def test_what_is_gone_is_left_alone(bench: Bench) -> None:
    bench.chats.regenerate(99)
    bench.chats.edit(99, "x")
    bench.chats.continue_answer(99)
    bench.chats.delete_message(99)
    assert not bench.chats.send(None, "  \n ")
    assert bench.engine.commands == []


def test_the_end_of_thinking_is_told_once_with_its_figures(bench: Bench) -> None:
    bench.load()
    told: list[tuple[int, float, int]] = []
    bench.chats.thought.connect(lambda *values: told.append(values))
    bench.engine.answers = [(Prefill(), Tokens(("<think>", "hm", "</thi", "nk>", "yes", " and </think> again"), tok_s=50))]
    turn = bench.ask("x")
    assert len(told) == 1
    message_id, seconds, n_tokens = told[0]
    assert message_id == turn.answer.id
    assert 0.0 <= seconds < 5.0
    assert 4 <= n_tokens <= 6


def test_a_thought_that_the_template_opened_belongs_to_the_answer(bench: Bench) -> None:
    added: list[str] = []
    bench.chats.text_added.connect(lambda _, text: added.append(text))
    bench.load()
    bench.engine.answer = (Opened(), Prefill(), Tokens(("hm", "</think>", "Yes."), tok_s=50))
    turn = bench.ask("why?")
    assert bench.shown(turn.chat.id)[-1] == ("assistant", "<think>\nhm</think>Yes.", "done")
    assert added[0].startswith("<think>\nhm") and "".join(added).count("<think>") == 1
    bench.engine.answer = (Opened(), Fail("OutOfMemory", "No."))
    assert bench.shown(bench.ask("and?", turn.chat.id).chat.id)[-1] == ("assistant", "", "error")
    assert last_generate(bench).messages[1] == ChatMessage("assistant", "<think>\nhm</think>Yes.")  # type: ignore[index]


def test_a_chat_deleted_while_its_question_is_saved_is_not_answered(bench: Bench) -> None:
    bench.load()
    turn = bench.ask("one")
    n_answers = len(bench.engine.sent(Generate))
    assert bench.chats.send(turn.chat.id, "two")
    bench.chats.delete_chat(turn.chat.id)
    bench.chats.delete_chat(turn.chat.id)
    # Both are on disk before this thread hears of either.
    bench.store.change(lambda db: None).result(5)
    bench.qtbot.waitUntil(lambda: bool(bench.troubles))
    bench.settle()
    assert "deleted in the meantime" in bench.troubles[0].sentence
    assert len(bench.engine.sent(Generate)) == n_answers
    assert len(bench.undos) == 1
