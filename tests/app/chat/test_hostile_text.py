"""Hostile model output: nothing raises, nothing hangs, no file is opened, the text that counts is still there."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chat.blocks.base import BlockContext
from app.chat.blocks.block_column import BlockColumn
from app.chat.render_pool import RenderPool

pytestmark = [pytest.mark.usefixtures("themed"), pytest.mark.filterwarnings("ignore:path is deprecated")]
_PIECES = [
    "# h\n", "text ", "**", "*", "_", "`", "```\n", "~~~\n", "$$\n", "$x$", "\\(", "\\)", "\\[\n", "\\]\n", "| a | b |\n",
    "|--|--|\n", "- i\n", "1. n\n", "  - n\n", "> q\n", "\n", "\n\n", "<think>", "</think>", "<img src='file:///etc/hostname'>",
    "![a](file:///etc/hostname)", "![b](PIPE)", "<b>", "&lt;", "[l](javascript:x)", "[l](https://e.org)", "\u202e", "\u2067",
    "\x00", "\x1b[0m", "\ud800", "\U0001f600", "中文", "---\n", "\t", "    code\n", "\r\n", "<!--", "-->", "<script>", "{{",
    "\u2028", "\ufffc", "a" * 300,
]  # fmt: skip


@pytest.fixture
def column(qtbot: QtBot, themed: None) -> Iterator[BlockColumn]:
    pool = RenderPool()
    widget = BlockColumn(BlockContext(pool, lambda link: None))
    qtbot.addWidget(widget)
    yield widget
    pool.close()


def test_three_hundred_samples(column: BlockColumn, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    opened: list[str] = []
    watching = [True]

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if watching[0] and event == "open" and str(arguments[0]).startswith("/etc/hostname"):
            opened.append(str(arguments[0]))

    sys.addaudithook(watch)
    rng = random.Random(11)
    slowest = 0.0
    for _ in range(300):
        text = "".join(rng.choice(_PIECES) for _ in range(rng.randint(1, 60))).replace("PIPE", pipe.as_uri())
        column._reset()
        start = time.thread_time()
        for i in range(0, len(text), 40):
            column.push(text[i : i + 40])
            column.layout_width(600)
        column.finish()
        column.layout_width(600)
        column.grab()
        slowest = max(slowest, (time.thread_time() - start) / (1 + len(text) // 4096))
        assert column._text == text
        assert "".join(block.source for block in column._splitter.closed) == text
    watching[0] = False
    assert not opened
    assert slowest < 2.0


@pytest.mark.parametrize("count", [100, 2000])
def test_very_many_list_items_stay_usable(column: BlockColumn, count: int) -> None:
    start = time.thread_time()
    column.push("- item\n" * count)
    column.layout_width(600)
    assert time.thread_time() - start < 0.004 * count + 0.5
