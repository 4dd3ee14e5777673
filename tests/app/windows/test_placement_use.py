"""The map of experts shows what was kept with answers: after a start, of a chat, of one answer; live counts when they come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pytestqt.qtbot import QtBot

from app.ops.expert_history import ExpertHistory
from app.store import chats
from engine.api.events import ExpertCounts
from engine.api.expert_use import ExpertUse
from engine.api.values import RequestId
from tests.helpers.placement_bench import placement_bench
from tests.helpers.placement_shown import Page

pytestmark = pytest.mark.usefixtures("themed")
N = 16


@pytest.fixture
def shown(qtbot: QtBot, tmp_path: Path) -> Iterator[Page]:
    with placement_bench(qtbot, tmp_path) as bench:
        yield Page(bench)


def counts_of(expert: int, n: int) -> np.ndarray:
    found = np.zeros((5, N), np.uint64)
    found[:, expert] = n
    return found


def keep(shown: Page, title: str, expert: int, n: int) -> None:
    store = shown.bench.store
    chat = store.change(lambda db: chats.add_chat(db, title=title)).result()
    row = store.change(lambda db: chats.add_message(db, chat.id, None, "assistant", "text")).result()
    use = ExpertUse.of(tuple(range(1, 6)), (n,) * 5, counts_of(expert, n))
    ExpertHistory(store).note(row.id, shown.bench.path, use)
    store.change(lambda db: None).result()


def choose(shown: Page, text: str) -> None:
    menu = shown.controller.use.menu()
    next(action for action in menu.actions() if action.text() == text).trigger()


def span(shown: Page) -> str:
    return shown.page.inspector.use.span.text()


def test_what_was_kept_is_shown_after_a_start_and_by_chat_and_answer(shown: Page) -> None:
    keep(shown, "Cooking", 2, 30)
    keep(shown, "Python", 7, 12)
    shown.open()
    heat = shown.bench.desk.heat
    assert span(shown) == "42 tokens, saved answers"
    assert heat.counts[1][2] == 30 and heat.counts[1][7] == 12
    choose(shown, "Cooking")
    assert span(shown) == "30 tokens, Cooking"
    assert heat.hottest(1, 1) == (2,) and heat.counts[5][7] == 0
    choose(shown, "Newest answer")
    assert span(shown) == "12 tokens, newest answer" and heat.hottest(3, 1) == (7,)
    choose(shown, "All saved answers")
    assert span(shown) == "42 tokens, saved answers"


def test_live_counts_replace_what_was_kept_unless_that_was_chosen(shown: Page) -> None:
    keep(shown, "Cooking", 2, 30)
    shown.load()
    tell = shown.bench.bridge.happened.emit
    heat = shown.bench.desk.heat
    tell(ExpertCounts(RequestId("w"), 0, (1, 2, 3, 4, 5), counts_of(0, 0), (0,) * 5))
    assert span(shown) == "30 tokens, saved answers"
    tell(ExpertCounts(RequestId("w"), 5, (1, 2, 3, 4, 5), counts_of(9, 5), (5,) * 5))
    assert span(shown) == "5 tokens" and heat.hottest(1, 1) == (9,)
    choose(shown, "Cooking")
    tell(ExpertCounts(RequestId("w"), 6, (1, 2, 3, 4, 5), counts_of(9, 6), (6,) * 5))
    assert span(shown) == "30 tokens, Cooking" and heat.hottest(1, 1) == (2,)
    choose(shown, "Since the model was loaded")
    assert span(shown) == "6 tokens" and heat.hottest(1, 1) == (9,)


def test_where_nothing_was_kept_it_is_said(shown: Page) -> None:
    shown.open()
    choose(shown, "Newest answer")
    assert shown.notices[-1] == "No experts of this model were counted there."
