"""Whether a prompt fits, and where it is cut when not. The scripted engine counts four tokens a message and one a word."""

from __future__ import annotations

import pytest

from app.ops.context_ops import NEW_MESSAGE, ContextUse, Overflow, Prompt, known_use
from app.ops.live_answer import LiveAnswer
from app.store import chats
from app.store.rows import Figures, MessageRow
from engine.api.commands import CountTokens, Generate
from engine.api.events import Finished, TokenDelta
from engine.api.values import RequestId, Usage
from tests.app.ops.conftest import Bench
from tests.helpers.fake_engine import Prefill, Stall, Tokens

N_CTX = 2048
LIMIT = N_CTX - 256


def filled(bench: Bench, n_turns: int, n_words: int) -> int:
    """A chat of n_turns questions and answers of n_words each."""
    bench.ask("first")
    chat_id = bench.turns[-1].chat.id

    def fill(db: object) -> None:
        leaf = chats.chat(db, chat_id).leaf_id  # type: ignore[arg-type]
        for i in range(n_turns * 2):
            role = "user" if i % 2 == 0 else "assistant"
            leaf = chats.add_message(db, chat_id, leaf, role, "word " * n_words).id  # type: ignore[arg-type]

    bench.store.change(fill).result(5)
    return chat_id


def asked(bench: Bench, prompt: Prompt) -> Overflow | None:
    """What check answers."""
    answers: list[Overflow | None] = []
    bench.chats.context.check(prompt, answers.append)
    bench.qtbot.waitUntil(lambda: bool(answers))
    return answers[0]


def test_a_short_prompt_is_known_to_fit_without_counting(bench: Bench) -> None:
    bench.load()
    n_counts = len(bench.engine.sent(CountTokens))
    assert asked(bench, Prompt(None, None, "hi")) is None
    assert len(bench.engine.sent(CountTokens)) == n_counts


@pytest.mark.parametrize(("n_words", "fits"), [(LIMIT - 5, True), (LIMIT - 4, True), (LIMIT - 3, False)])
def test_the_boundary_is_exact(bench: Bench, n_words: int, fits: bool) -> None:
    bench.load()
    overflow = asked(bench, Prompt(None, None, "w " * n_words))
    assert (overflow is None) == fits
    if overflow is not None:
        assert overflow == Overflow(LIMIT + 1, N_CTX, longer=4096)


def test_a_message_longer_than_the_model_allows_cannot_be_helped(bench: Bench) -> None:
    bench.load()
    assert asked(bench, Prompt(None, None, "w " * 9000)) == Overflow(9004, N_CTX)


def test_the_oldest_turns_are_cut_so_that_room_is_left(bench: Bench) -> None:
    bench.load()
    chat_id = filled(bench, 10, 100)
    leaf = bench.store.chat(chat_id).leaf_id
    overflow = asked(bench, Prompt(chat_id, leaf, "and now?"))
    assert overflow is not None
    assert overflow.n_tokens > LIMIT
    rows = bench.store.messages(chat_id)
    kept = next(i for i, row in enumerate(rows) if row.id == overflow.seen_from)
    assert overflow.n_left_out == kept
    assert rows[kept].role == "user"
    assert sum(len(row.text.split()) + 4 for row in rows[kept:]) <= 0.65 * N_CTX
    assert not overflow.agreed


def test_only_the_new_message_may_stay(bench: Bench) -> None:
    bench.load()
    chat_id = filled(bench, 1, 600)
    overflow = asked(bench, Prompt(chat_id, bench.store.chat(chat_id).leaf_id, "w " * 1700))
    assert overflow is not None
    assert (overflow.seen_from, overflow.n_left_out) == (NEW_MESSAGE, 4)


def test_a_trimmed_chat_sends_what_is_left_and_keeps_everything(bench: Bench) -> None:
    bench.load()
    chat_id = filled(bench, 10, 100)
    overflow = asked(bench, Prompt(chat_id, bench.store.chat(chat_id).leaf_id, "and now?"))
    assert overflow is not None
    before = len(bench.store.messages(chat_id))
    assert bench.chats.send(chat_id, "and now?", seen_from=overflow.seen_from)
    bench.qtbot.waitUntil(lambda: len(bench.turns) == 2)
    bench.settle()
    (*_, command) = bench.engine.sent(Generate)
    assert isinstance(command, Generate)
    assert command.messages is not None
    assert len(command.messages) == before + 1 - overflow.n_left_out
    assert len(bench.store.messages(chat_id)) == before + 2
    assert bench.store.chat(chat_id).seen_from == overflow.seen_from
    again = asked(bench, Prompt(chat_id, bench.store.chat(chat_id).leaf_id, "w " * 1700))
    assert again is not None
    assert again.agreed


def test_context_grows_while_an_answer_is_read_and_written(bench: Bench) -> None:
    bench.load()
    bench.engine.answers = [(Prefill(32, 16), Tokens(("a ",) * 8), Stall(60))]
    turn = bench.ask("q", wait=False)
    bench.qtbot.waitUntil(lambda: bool(bench.contexts) and bench.contexts[-1].used == 40)
    figures = [use.used for use in bench.contexts]
    assert figures == sorted(figures)
    assert 16 in figures
    bench.chats.count_context(turn.chat.id)
    assert bench.contexts[-1] == ContextUse(turn.chat.id, 40, N_CTX)
    bench.chats.stop(turn.chat.id)
    bench.settle()
    assert bench.contexts[-1].used == 40


def test_context_is_told_at_once_from_the_figures(bench: Bench) -> None:
    bench.load()
    turn = bench.ask("q")
    bench.contexts.clear()
    bench.chats.count_context(turn.chat.id)
    assert bench.contexts == [ContextUse(turn.chat.id, 36, N_CTX)]
    bench.qtbot.waitUntil(lambda: len(bench.contexts) == 2)


def test_a_count_that_comes_after_an_answer_began_is_dropped(bench: Bench) -> None:
    bench.load()
    turn = bench.ask("q")
    bench.chats.count_context(turn.chat.id)
    bench.chats.context.tell(turn.chat.id, 77)
    bench.qtbot.wait(50)
    assert bench.contexts[-1].used == 77


def test_an_answer_cut_off_by_the_context_is_an_error_with_a_way_out() -> None:
    live = LiveAnswer(MessageRow(2, 1, 1, "assistant", "text", "streaming", 0.0), RequestId("r"))
    live.end(Finished(RequestId("r"), "length", Usage(n_prompt=90, n_generated=10)), n_ctx=100)
    assert (live.row.status, live.row.error_kind, live.row.text) == ("error", "ContextFull", "text")
    assert "100 tokens" in live.row.error
    live.end(Finished(RequestId("r"), "length", Usage(n_prompt=50, n_generated=10)), n_ctx=100)
    assert (live.row.status, live.row.error_kind, live.n_context) == ("done", "", 60)


def test_half_a_character_is_no_part_of_a_stopped_answer() -> None:
    live = LiveAnswer(MessageRow(2, 1, 1, "assistant", "原生\ufffd", "streaming", 0.0), RequestId("r"))
    live.end(Finished(RequestId("r"), "cancelled", Usage(n_prompt=9, n_generated=3)))
    assert (live.row.status, live.row.text) == ("stopped", "原生")


def test_a_continued_answer_counts_its_first_part_once() -> None:
    row = MessageRow(2, 1, 1, "assistant", "text", "stopped", 0.0, Figures(n_tokens=10, n_prompt=90))
    live = LiveAnswer(row, RequestId("r"))
    live.note_prompt(100)
    live.add(TokenDelta(RequestId("r"), "more", 5, 5, None))
    assert live.n_context == 105
    live.end(Finished(RequestId("r"), "stop", Usage(n_prompt=100, n_generated=5)))
    assert live.n_context == 105


def test_known_use_guesses_what_has_no_figures() -> None:
    rows = (
        MessageRow(1, 1, None, "user", "q", "done", 0.0),
        MessageRow(2, 1, 1, "assistant", "a", "done", 0.0, Figures(n_tokens=5, n_prompt=20)),
        MessageRow(3, 1, 2, "user", "x" * 40, "done", 0.0),
    )
    assert known_use(rows) == 35
    assert known_use(()) == 0
