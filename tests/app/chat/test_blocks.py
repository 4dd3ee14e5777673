"""Block widgets: growing code, growing tables, folds, formulas."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.chat.blocks.base import BlockContext
from app.chat.blocks.block_column import BlockColumn
from app.chat.blocks.code_view import CodeView, code_of
from app.chat.blocks.math_view import MathView
from app.chat.blocks.prose_view import ProseView
from app.chat.blocks.table_view import MAX_CELLS, TableView
from app.chat.blocks.think_view import ThinkView, thought_of
from app.chat.highlight import highlight
from app.chat.markdown import Block
from app.chat.render_pool import RenderPool
from app.chat.table_text import parse_table

pytestmark = [pytest.mark.usefixtures("themed"), pytest.mark.filterwarnings("ignore:path is deprecated")]


@pytest.fixture
def context(themed: None) -> Iterator[BlockContext]:
    pool = RenderPool()
    yield BlockContext(pool, lambda link: None)
    pool.close()


def views(column: BlockColumn, kind: type[QWidget]) -> list[QWidget]:
    return [child for child in column.children() if isinstance(child, kind) and not child.isHidden()]


def test_closed_blocks_keep_their_widgets_while_text_streams(qtbot: QtBot, context: BlockContext) -> None:
    column = BlockColumn(context)
    qtbot.addWidget(column)
    column.push("First paragraph.\n\n")
    first = views(column, ProseView)[0]
    for piece in ["Second ", "paragraph.\n\n", "```py\n", "x = 1\n", "```\n", "End"]:
        column.push(piece)
        column.layout_width(600)
    assert views(column, ProseView)[0] is first
    assert len(views(column, CodeView)) == 1
    assert [view.text() for view in column.text_views()] == ["First paragraph.", "Second paragraph.", "x = 1", "End"]


def test_a_tail_that_turns_into_a_table_changes_its_widget(qtbot: QtBot, context: BlockContext) -> None:
    column = BlockColumn(context)
    qtbot.addWidget(column)
    column.push("| a | b |\n")
    assert len(views(column, ProseView)) == 1
    column.push("|---|---|\n| 1 | 2 |\n")
    assert (len(views(column, ProseView)), len(views(column, TableView))) == (0, 1)


def test_layout_is_the_same_for_pieces_and_whole(qtbot: QtBot, context: BlockContext) -> None:
    text = "Para\n\n- a\n- b\n\n```c\nint x;\n```\n\n| a |\n|---|\n| 1 |\n\nEnd"
    whole, pieces = BlockColumn(context), BlockColumn(context)
    qtbot.addWidget(whole)
    qtbot.addWidget(pieces)
    whole.set_text(text, True)
    for char in text:
        pieces.push(char)
        pieces.layout_width(640)
    pieces.finish()
    assert pieces.layout_width(640) == whole.layout_width(640)


def test_a_table_with_too_many_cells_is_shown_as_code(qtbot: QtBot, context: BlockContext) -> None:
    column = BlockColumn(context)
    qtbot.addWidget(column)
    column.set_text("| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * MAX_CELLS, True)
    assert (len(views(column, TableView)), len(views(column, CodeView))) == (0, 1)


def test_code_of_drops_the_fences_only() -> None:
    assert code_of("```python\nx\n\n  y\n```\n") == "x\n\n  y"
    assert code_of("~~~\nopen") == "open"
    assert code_of("\n```\n```\n") == ""


def test_code_copies_its_source_and_is_coloured(qtbot: QtBot, context: BlockContext) -> None:
    view = CodeView(context)
    qtbot.addWidget(view)
    view.set_block(Block("code", "```python\ndef f():\n    return 1\n```\n", "python", True))
    qtbot.waitUntil(lambda: bool(view.view.document.firstBlock().layout().formats()), timeout=5000)
    view._copy.click()
    assert QGuiApplication.clipboard().text() == "def f():\n    return 1"


def test_code_marks_hidden_direction_controls(qtbot: QtBot, context: BlockContext) -> None:
    view = CodeView(context)
    qtbot.addWidget(view)
    view.set_block(Block("code", "```\na = '\u202e'\n```\n", "", True))
    assert view.view.text() == "a = '<U+202E>'"


def test_highlight_runs_lie_inside_the_code() -> None:
    code = "class A:\n    x = 'é\U0001f600'  # note\n"
    runs = highlight(code, "python")
    assert runs
    units = code.encode("utf-16-le")
    assert all(start >= 0 and 2 * (start + length) <= len(units) for start, length, _token in runs)
    start, length, _token = next(run for run in runs if run[2] == "syn_comment")
    assert units[2 * start : 2 * (start + length)].decode("utf-16-le") == "# note"
    assert highlight(code, "no such language") == ()


def test_parse_table_aligns_and_fills_up() -> None:
    table = parse_table("| a | b \\| c |\n|:-:|---:|\n| 1 |\n| 1 | 2 | 3 |\n")
    assert table.header == ("a", "b | c")
    assert table.aligns == ("center", "right")
    assert table.rows == (("1", ""), ("1", "2"))


def test_think_fold_opens_and_counts(qtbot: QtBot, context: BlockContext) -> None:
    view = ThinkView(context, BlockColumn)
    qtbot.addWidget(view)
    view.set_block(Block("think", "<think>\nLet me *see*.", "", False))
    assert "Thinking" in view._header.text()
    view.set_block(Block("think", "<think>\nLet me *see*.\n</think>\n", "", True))
    assert "Thought for" in view._header.text()
    closed = view.layout_width(500)
    view.fold(False)
    assert view.layout_width(500) > closed
    assert view.text_views()[0].text() == "Let me see."


@pytest.mark.parametrize("source", ["<think>a</think>", "<think>\na", "<think>a</th", "<think>a</think>\n\n"])
def test_thought_of_has_no_tags(source: str) -> None:
    assert thought_of(source) == "a"


def test_formula_is_set_when_its_block_closes(qtbot: QtBot, context: BlockContext) -> None:
    view = MathView(context)
    qtbot.addWidget(view)
    view.set_block(Block("math", "$$\\frac{1}{2}$$\n", "", False))
    assert view.text_views()
    with qtbot.waitSignal(view.height_changed, timeout=20_000):
        view.set_block(Block("math", "$$\\frac{1}{2}$$\n", "", True))
    assert not view.text_views()
    assert view.layout_width(500) > 20


def test_formula_that_cannot_be_set_stays_text(qtbot: QtBot, context: BlockContext) -> None:
    view = MathView(context)
    qtbot.addWidget(view)
    view.set_block(Block("math", "$$\\frac{$$\n", "", True))
    qtbot.waitUntil(lambda: context.pool.pending == 0, timeout=20_000)
    assert view.text_views()[0].text() == "$$\\frac{$$"


def test_restyle_survives_every_kind(qtbot: QtBot, context: BlockContext) -> None:
    column = BlockColumn(context)
    qtbot.addWidget(column)
    column.set_text(
        "<think>a</think>\n# h\n\np `c` $x$\n\n- i\n\n> q\n\n---\n\n```py\nx\n```\n\n| a |\n|---|\n| b |\n\n$$y$$\n", True
    )
    height = column.layout_width(600)
    column.restyle()
    assert column.layout_width(600) == height


def test_marks_of_a_search_come_with_blocks_that_come_later(qtbot: QtBot, context: BlockContext) -> None:
    column = BlockColumn(context)
    qtbot.addWidget(column)
    column.push("one thing\n\n")
    column.set_needle("thing")
    column.push("another thing\n\n")
    assert [view._needle for view in column.text_views()] == ["thing", "thing"]
