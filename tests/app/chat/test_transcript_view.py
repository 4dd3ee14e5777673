"""The virtualised column: few widgets, flat cost, stays where the reader is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from app.chat.transcript_view import TranscriptView
from app.shots import script
from app.store.rows import Figures, MessageRow

pytestmark = [pytest.mark.usefixtures("themed"), pytest.mark.filterwarnings("ignore:path is deprecated")]


@pytest.fixture
def transcript(qtbot: QtBot, themed: None) -> Iterator[TranscriptView]:
    view = TranscriptView()
    qtbot.addWidget(view)
    view.resize(900, 800)
    view.show()
    yield view
    view.shut_down()


def at_end(view: TranscriptView) -> bool:
    return view.verticalScrollBar().value() == view.verticalScrollBar().maximum()


def test_two_thousand_messages_open_quickly_with_few_widgets(transcript: TranscriptView, qtbot: QtBot) -> None:
    rows = script.long_history(2000)
    best = 1e9
    for _ in range(3):
        start = time.thread_time()
        transcript.set_messages(rows)
        QGuiApplication.processEvents()
        best = min(best, time.thread_time() - start)
    assert best <= 0.3
    assert 3 <= transcript.live_widgets() <= 60
    assert at_end(transcript)


def test_scrolling_through_keeps_the_number_of_widgets_bounded(transcript: TranscriptView) -> None:
    transcript.set_messages(script.long_history(400))
    bar = transcript.verticalScrollBar()
    for step in range(40):
        bar.setValue(bar.maximum() * step // 40)
        assert transcript.live_widgets() <= 60


def test_a_long_answer_streams_at_a_flat_cost(transcript: TranscriptView) -> None:
    transcript.set_messages((script.message(1, "user", "go"), script.message(2, "assistant", "", "streaming")))
    text = (script.ANSWER.split("</think>")[1] + script.MATH + script.SUMMARY + "\n\n") * 12
    costs = []
    for i in range(0, len(text), 28):
        start = time.thread_time()
        transcript.append_text(2, text[i : i + 28])
        costs.append(time.thread_time() - start)
        QGuiApplication.processEvents()
    quarter = len(costs) // 4
    first, last = (sorted(part)[quarter // 2] for part in (costs[:quarter], costs[-quarter:]))
    assert last <= 2.0 * first + 0.0005
    assert sorted(costs)[int(len(costs) * 0.99)] <= 0.033


def test_streamed_text_equals_the_whole(transcript: TranscriptView) -> None:
    text = script.ANSWER + script.SUMMARY
    transcript.set_messages((script.message(1, "user", "q"), script.message(2, "assistant", "", "streaming")))
    for i in range(0, len(text), 13):
        transcript.append_text(2, text[i : i + 13])
    streamed = [view.text() for view in transcript._views[2].text_views()]
    transcript.update_message(script.message(2, "assistant", text, figures=Figures(10)))
    transcript.set_messages((script.message(1, "user", "q"), script.message(2, "assistant", text)))
    assert [view.text() for view in transcript._views[2].text_views()] == streamed


def test_reader_stays_where_he_is_while_text_arrives(transcript: TranscriptView, qtbot: QtBot) -> None:
    rows = (*script.long_history(30), script.message(31, "user", "x"), script.message(32, "assistant", "", "streaming"))
    transcript.set_messages(rows)
    bar = transcript.verticalScrollBar()
    transcript.append_text(32, "line\n\n" * 5)
    assert at_end(transcript)
    bar.setValue(bar.maximum() // 2)
    before = bar.value()
    first = transcript._heights.index_at(before)
    transcript.append_text(32, "more\n\n" * 30)
    assert transcript._heights.index_at(bar.value()) == first
    assert not at_end(transcript)
    assert transcript._pill.isVisible()
    qtbot.mouseClick(transcript._pill, Qt.MouseButton.LeftButton)
    assert at_end(transcript)
    assert not transcript._pill.isVisible()


def test_new_question_brings_the_reader_to_the_end(transcript: TranscriptView, qtbot: QtBot) -> None:
    transcript.set_messages(script.long_history(60))
    transcript.verticalScrollBar().setValue(0)
    transcript.append(script.message(61, "user", "new"))
    qtbot.waitUntil(lambda: at_end(transcript), timeout=1000)


def test_find_counts_messages_and_goes_there(transcript: TranscriptView) -> None:
    rows = list(script.long_history(300))
    rows[10] = replace(rows[10], text="a Needle here")
    rows[200] = replace(rows[200], text="another needle")
    transcript.set_messages(rows)
    assert transcript.find("NEEDLE") == 2
    assert rows[200].id in transcript._views
    assert transcript.find_step(-1) == (1, 2)
    assert rows[10].id in transcript._views
    assert transcript.find("nowhere") == 0
    assert transcript.find_step(1) == (0, 0)


def test_states_offer_their_actions(transcript: TranscriptView, qtbot: QtBot) -> None:
    transcript.set_messages(script.ended_badly())
    with qtbot.waitSignal(transcript.continue_requested) as blocker:
        transcript._views[2]._stats._continue.click()
    assert blocker.args == [2]
    with qtbot.waitSignal(transcript.error_action_requested) as blocker:
        transcript._views[6]._error._button.click()
    assert blocker.args == [6]


def test_copy_takes_the_source_and_branches_step(transcript: TranscriptView, qtbot: QtBot) -> None:
    transcript.set_messages(script.long_answer())
    view = transcript._views[2]
    view._need_actions()
    with qtbot.waitSignal(transcript.copy_requested):
        view._actions._buttons["copy"].click()
    assert QGuiApplication.clipboard().text() == script.MATH
    with qtbot.waitSignal(transcript.branch_requested) as blocker:
        view._actions._forward.click()
    assert blocker.args == [2, 1]


def test_editing_a_question_in_its_place(transcript: TranscriptView, qtbot: QtBot) -> None:
    transcript.set_messages(script.long_answer())
    transcript.edit_message(1)
    editor = transcript._views[1]._editor
    editor._edit.setPlainText("Another question")
    with qtbot.waitSignal(transcript.edit_requested) as blocker:
        qtbot.keyClick(editor._edit, Qt.Key.Key_Return)
    assert blocker.args == [1, "Another question"]
    assert transcript._views[1]._editor is None


def test_prefill_shows_until_text_comes(transcript: TranscriptView) -> None:
    transcript.set_messages(script.prefill())
    transcript.set_prefill(2, 512, 2048, 400.0)
    view = transcript._views[2]
    assert "512" in view._prefill.accessibleName()
    transcript.append_text(2, "Hello")
    assert view._prefill is None


def test_five_megabytes_of_a_user_are_shown_in_part(transcript: TranscriptView) -> None:
    row = script.message(1, "user", "x" * 5_000_000)
    best = 1e9
    for _ in range(3):
        transcript.clear()
        start = time.thread_time()
        transcript.set_messages((row,))
        QGuiApplication.processEvents()
        best = min(best, time.thread_time() - start)
    assert best < 0.5


def test_theme_switch_keeps_the_transcript(transcript: TranscriptView, qapp: object) -> None:
    from app import theme

    transcript.set_messages(script.streaming())
    theme.apply(qapp, theme.LIGHT)
    assert transcript.live_widgets() == 2
    assert transcript._views[2].text_views()[0].text().startswith("Keep everything")


def test_unknown_messages_are_ignored(transcript: TranscriptView) -> None:
    transcript.append_text(99, "x")
    transcript.set_prefill(99, 1, 2, None)
    transcript.update_message(MessageRow(99, 1, None, "user", "x", "done", 0.0))
    transcript.edit_message(99)
    assert transcript.live_widgets() == 0


def test_a_selection_reaches_over_blocks_and_messages(transcript: TranscriptView, qtbot: QtBot) -> None:
    transcript.set_messages(
        (script.message(1, "user", "Question"), script.message(2, "assistant", "First block.\n\nSecond block."))
    )
    views = transcript.selectable_views()
    assert [view.text() for view in views] == ["Question", "First block.", "Second block."]
    qtbot.mousePress(views[0], Qt.MouseButton.LeftButton, pos=QPoint(1, 5))
    views[0]._select_to(views[2].mapToGlobal(QPoint(views[2].width() - 1, 8)))
    qtbot.keyClick(views[0], Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "Question\n\nFirst block.\n\nSecond block."
    qtbot.mousePress(views[1], Qt.MouseButton.LeftButton, pos=QPoint(1, 5))
    assert views[0].selected_text() == views[2].selected_text() == ""


def test_prefill_and_figures_survive_scrolling_away(transcript: TranscriptView) -> None:
    rows = (*script.long_history(100), script.message(101, "user", "x"), script.message(102, "assistant", "", "streaming"))
    transcript.set_messages(rows)
    transcript.verticalScrollBar().setValue(0)
    assert 102 not in transcript._views
    transcript.set_prefill(102, 10, 40, 5.0)
    transcript.scroll_to_end()
    assert "10 of 40" in transcript._views[102]._prefill.accessibleName()
    transcript.verticalScrollBar().setValue(0)
    transcript.append_text(102, "text")
    transcript.set_live_figures(102, 9.5, 1)
    transcript.scroll_to_end()
    assert transcript._views[102].row.text == "text"
    assert transcript._views[102].row.figures.decode_tok_s == 9.5


def test_a_thousand_paragraphs_at_once_are_shown_in_turns(transcript: TranscriptView, qtbot: QtBot) -> None:
    text = "".join(f"no {i}\n\n" for i in range(1300)) + "and the end"
    transcript.set_messages((script.message(1, "user", "go"), script.message(2, "assistant", "", "streaming")))
    turns = []

    def took(work: Callable[[], object]) -> None:
        begun = time.thread_time()
        work()
        turns.append(time.thread_time() - begun)

    took(lambda: transcript.append_text(2, text))
    assert transcript.pending > 1000
    transcript.find("no 1299")  # which is not made yet
    while transcript.pending:
        took(QGuiApplication.processEvents)
    assert len(turns) > 20
    assert sorted(turns)[len(turns) // 2] <= 0.05  # half of them, also beside other tests
    shown = [view.text() for view in transcript._views[2].text_views()]
    assert shown == [*(f"no {i}" for i in range(1300)), "and the end"]
    marked = [view.text() for view in transcript._views[2].text_views() if view._matches()]
    assert marked == ["no 1299"]
    transcript.scroll_to_end()
    qtbot.waitUntil(lambda: at_end(transcript))


def test_text_that_is_replaced_before_it_was_shown_leaves_nothing(transcript: TranscriptView) -> None:
    transcript.set_messages((script.message(1, "user", "go"), script.message(2, "assistant", "", "streaming")))
    transcript.append_text(2, "".join(f"no {i}\n\n" for i in range(200)))
    transcript.update_message(script.message(2, "assistant", "Another.", figures=Figures(10)))
    for _ in range(30):
        QGuiApplication.processEvents()
    assert not transcript.pending
    assert [view.text() for view in transcript._views[2].text_views()] == ["Another."]


def test_the_reader_stays_where_he_is_while_text_above_him_is_made(transcript: TranscriptView, qtbot: QtBot) -> None:
    text = "".join(f"no {i}\n\n" for i in range(600))
    rows = (script.message(1, "user", "go"), script.message(2, "assistant", text), script.message(3, "user", "next"))
    transcript.set_messages(rows)
    qtbot.waitUntil(lambda: not transcript.pending)
    for _ in range(5):
        QGuiApplication.processEvents()
    assert at_end(transcript)
    assert transcript._views[3].y() + transcript._views[3].height() <= transcript.viewport().height()
