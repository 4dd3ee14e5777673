"""ChatStore: branches, delete and undo, search, the journal and what a crash leaves."""

from __future__ import annotations

import itertools
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.store import chats
from app.store.chat_store import ChatStore
from app.store.chats import Answer, NoSuchRow
from app.store.db import DbBug
from app.store.rows import Figures, MessageRow


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    made = ChatStore(tmp_path / "chats.db")
    yield made
    made.close()


def add(store: ChatStore, chat_id: int, parent: int | None, role: str, text: str, status: str = "done") -> MessageRow:
    return store.change(lambda db: chats.add_message(db, chat_id, parent, role, text, status)).result(5)  # type: ignore[arg-type]


def change(store: ChatStore, function: Callable[..., Any], *arguments: Any) -> Any:
    return store.change(lambda db: function(db, *arguments)).result(5)


def new_chat(store: ChatStore, title: str = "A chat") -> int:
    return store.change(lambda db: chats.add_chat(db, title)).result(5).id


def test_messages_come_back_in_order_after_a_restart(tmp_path: Path) -> None:
    store = ChatStore(tmp_path / "chats.db")
    chat = new_chat(store, "Héllo 世界")
    question = add(store, chat, None, "user", "What?\nTwo lines 🎉")
    add(store, chat, question.id, "assistant", "That.")
    store.close()
    again = ChatStore(tmp_path / "chats.db")
    assert [(m.role, m.text, m.status) for m in again.messages(chat)] == [
        ("user", "What?\nTwo lines 🎉", "done"),
        ("assistant", "That.", "done"),
    ]
    assert again.chats()[0].title == "Héllo 世界"
    again.close()


def test_regenerated_answers_are_siblings_and_switching_shows_each_branch(store: ChatStore) -> None:
    chat = new_chat(store)
    question = add(store, chat, None, "user", "q")
    first = add(store, chat, question.id, "assistant", "first")
    follow_up = add(store, chat, first.id, "user", "more")
    second = add(store, chat, question.id, "assistant", "second")
    assert [m.id for m in store.messages(chat)] == [question.id, second.id]
    assert store.messages(chat)[-1].position == (1, 2)
    change(store, chats.switch_branch, second.id, -1)
    assert [m.id for m in store.messages(chat)] == [question.id, first.id, follow_up.id]
    assert store.messages(chat)[1].position == (0, 2)
    change(store, chats.switch_branch, first.id, -1)
    assert store.messages(chat)[1].id == first.id


def test_delete_message_and_undo_bring_the_same_branch_back(store: ChatStore) -> None:
    chat = new_chat(store)
    question = add(store, chat, None, "user", "q")
    answer = add(store, chat, question.id, "assistant", "a")
    add(store, chat, answer.id, "user", "more")
    before = store.messages(chat)
    removed = change(store, chats.delete_message, answer.id)
    assert [m.id for m in store.messages(chat)] == [question.id]
    with pytest.raises(NoSuchRow):
        store.message(answer.id)
    change(store, chats.restore_messages, removed)
    assert store.messages(chat) == before


def test_delete_chat_hides_it_undo_restores_and_a_restart_removes_it_for_good(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    store = ChatStore(path)
    chat = new_chat(store, "Secret")
    question = add(store, chat, None, "user", "the secret text")
    add(store, chat, question.id, "assistant", "an answer")
    kept = new_chat(store, "Kept")
    change(store, chats.delete_chat, chat)
    assert [row.id for row in store.chats()] == [kept]
    assert store.search("secret") == ()
    change(store, chats.restore_chat, chat)
    assert {row.id for row in store.chats()} == {chat, kept}
    change(store, chats.delete_chat, chat)
    store.close()
    ChatStore(path).close()
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM message").fetchone() == (0,)
    assert db.execute("SELECT title FROM chat").fetchall() == [("Kept",)]
    assert db.execute("SELECT count(*) FROM message_search").fetchone() == (0,)
    db.close()


def test_a_streaming_answer_is_interrupted_after_a_restart_and_can_be_found(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    store = ChatStore(path)
    chat = new_chat(store)
    question = add(store, chat, None, "user", "q")
    answer = add(store, chat, question.id, "assistant", "", "streaming")
    store.journal(Answer(answer.id, "half an ans", "streaming", Figures(n_tokens=4)))
    store.close()
    again = ChatStore(path)
    assert again.unfinished_chat() == chat
    last = again.messages(chat)[-1]
    assert (last.text, last.status, last.figures.n_tokens) == ("half an ans", "interrupted", 4)
    assert [hit.message_id for hit in again.search("half")] == [answer.id]
    again.close()


def test_reading_sees_the_journal_before_it_is_on_disk(store: ChatStore) -> None:
    chat = new_chat(store)
    question = add(store, chat, None, "user", "q")
    answer = add(store, chat, question.id, "assistant", "", "streaming")
    for n in range(1, 50):
        store.journal(Answer(answer.id, "x" * n, "streaming", Figures(n_tokens=n)))
        assert store.messages(chat)[-1].text == "x" * n
    store.journal(Answer(answer.id, "whole", "done", Figures(50, 7, 12.5, 100.0, 0.3)))
    assert store.message(answer.id).status == "done"
    assert store.message(answer.id).figures == Figures(50, 7, 12.5, 100.0, 0.3)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("专家", True),
        ("放置", True),
        ("家放", True),
        ("numa", True),
        ("nu", True),
        ("显存", False),
        ('"', False),
        ("带 numa", True),
    ],
)
def test_search_finds_words_prefixes_and_single_han_characters(store: ChatStore, query: str, found: bool) -> None:
    chat = new_chat(store, "Untitled")
    add(store, chat, None, "user", "请解释专家放置与内存带宽 on NUMA nodes")
    assert bool(store.search(query)) is found


@pytest.mark.parametrize("query", ["", "  ", '"""', "a AND", "NEAR(", "*", "col:x", "'; DROP TABLE chat;--", "\0"])
def test_no_query_is_a_syntax_error(store: ChatStore, query: str) -> None:
    new_chat(store, "title")
    store.search(query)
    assert len(store.chats()) == 1


def test_search_finds_titles_also_after_a_rename(store: ChatStore) -> None:
    chat = new_chat(store, "Offload plan")
    change(store, chats.rename, chat, "Rust lifetimes")
    assert store.search("offload") == ()
    assert [hit.chat_id for hit in store.search("rust life")] == [chat]


@pytest.mark.expects_warnings
def test_a_job_that_breaks_a_promise_ends_its_future_and_changes_nothing(store: ChatStore) -> None:
    def bad(db: sqlite3.Connection) -> None:
        chats.add_chat(db, "half done")
        db.execute("INSERT INTO message (chat_id, role, text, status, created_s) VALUES (1, 'nobody', '', 'done', 0)")

    with pytest.raises(DbBug):
        raise store.change(bad).exception(5) or AssertionError("no error")
    assert store.chats() == ()


def test_messages_of_a_chat_that_is_not_there(store: ChatStore) -> None:
    with pytest.raises(NoSuchRow):
        store.messages(7)
    assert isinstance(store.change(lambda db: chats.add_message(db, 7, None, "user", "x")).exception(5), NoSuchRow)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.sampled_from(["add", "switch", "delete", "undo"]), st.integers(0, 30)), max_size=25))
def test_branches_hold_together_whatever_is_done(store: ChatStore, steps: list[tuple[str, int]]) -> None:
    chat = new_chat(store)
    live: list[int] = []
    removed: list[chats.Removed] = []
    for verb, number in steps:
        if verb == "add":
            parent = live[number % len(live)] if live and number % 4 else None
            live.append(add(store, chat, parent, "user", f"m{number}").id)
        elif verb == "switch" and live:
            change(store, chats.switch_branch, live[number % len(live)], 1 - 2 * (number % 2))
        elif verb == "delete" and live:
            gone = change(store, chats.delete_message, live[number % len(live)])
            removed.append(gone)
            live = [m for m in live if m not in gone.message_ids]
        elif verb == "undo" and removed:
            back = removed.pop()
            change(store, chats.restore_messages, back)
            live += back.message_ids
        shown = store.messages(chat)
        assert {m.id for m in shown} <= set(live)
        assert bool(shown) == bool(live) or store.chat(chat).leaf_id is None
        for parent_row, child in itertools.pairwise(shown):
            assert child.parent_id == parent_row.id
        assert all(0 <= m.position[0] < m.position[1] for m in shown)


@pytest.mark.parametrize("n", [2000])
def test_a_long_chat_is_read_quickly(store: ChatStore, n: int) -> None:
    chat = new_chat(store)

    def fill(db: sqlite3.Connection) -> None:
        parent = None
        for i in range(n):
            parent = chats.add_message(db, chat, parent, "user" if i % 2 == 0 else "assistant", f"message {i} " * 40).id

    store.change(fill).result(60)
    best = 1.0
    for _ in range(3):
        start = time.thread_time()
        assert len(store.messages(chat)) == n
        best = min(best, time.thread_time() - start)
    assert best < 0.1


def test_the_chat_that_a_crash_cut_off_is_the_one_to_go_on_with(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    store = ChatStore(path)
    cut_off, other = new_chat(store), new_chat(store)
    question = add(store, cut_off, None, "user", "q")
    add(store, cut_off, question.id, "assistant", "half", "streaming")
    add(store, other, None, "user", "newer")
    assert store.unfinished_chat() is None
    store.close()
    again = ChatStore(path)
    assert again.unfinished_chat() == cut_off
    again.close()
    later = ChatStore(path)
    assert later.unfinished_chat() is None
    later.change(lambda db: chats.delete_chat(db, other)).result(5)
    assert later.unfinished_chat() == cut_off
    later.close()
