"""Model text becomes formatted text, never markup that does something."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from PySide6.QtCore import QUrl
from PySide6.QtGui import QFont, QTextCharFormat, QTextCursor, QTextDocument

from app.chat.blocks.rich_text import MARKER_PROPERTY, TextStyle, fill
from app.chat.blocks.safe_document import SafeDocument

pytestmark = pytest.mark.usefixtures("themed")


def rendered(source: str) -> SafeDocument:
    document = SafeDocument()
    fill(document, source, TextStyle())
    return document


def format_of(document: QTextDocument, word: str) -> QTextCharFormat:
    cursor = document.find(word)
    assert not cursor.isNull(), f"{word!r} is not in {document.toPlainText()!r}"
    return QTextCursor(cursor).charFormat()


def test_emphasis_beside_chinese_punctuation_is_set() -> None:
    document = rendered("**中文总结：**注意力与 KV 缓存")
    assert document.toPlainText() == "中文总结：注意力与 KV 缓存"
    assert format_of(document, "总结").fontWeight() == QFont.Weight.Bold
    assert format_of(document, "注意力").fontWeight() == QFont.Weight.Normal


@pytest.mark.parametrize("source", ["snake_case_name", "2 * 3 * 4", "a ** b", "__init__ is * not *"])
def test_stars_and_underscores_in_words_stay(source: str) -> None:
    shown = rendered(source).toPlainText()
    assert shown.replace("_", "").replace("*", "") == source.replace("_", "").replace("*", "")


def test_html_is_shown_as_text() -> None:
    source = '<img src="file:///etc/hostname"> <b>x</b> <script>alert(1)</script>'
    document = rendered(source)
    assert document.toPlainText() == source
    assert "￼" not in document.toPlainText()


def test_an_image_is_a_note_and_no_pipe_is_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    document = rendered(f"![secret]({QUrl.fromLocalFile(str(pipe)).toString()}) and ![logo](https://tracker.example/a.png?q=1)")
    document.setTextWidth(400)
    # Opening the pipe would wait for ever.
    assert document.size().height() > 0
    assert "tracker.example, not loaded" in document.toPlainText()
    assert "secret" in document.toPlainText()


def test_the_document_itself_never_loads(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    document = SafeDocument()
    document.setHtml(f'<p>a<img src="{QUrl.fromLocalFile(str(pipe)).toString()}">b</p>')
    document.setTextWidth(300)
    assert document.size().height() > 0
    image = document.resource(QTextDocument.ResourceType.ImageResource.value, QUrl.fromLocalFile(str(pipe)))
    assert image is None or image.isNull()


def test_control_characters_go_and_bidi_is_visible_in_code() -> None:
    document = rendered("bell\x07 and \x1b[31mred `evil\u202etxt.exe`")
    assert document.toPlainText() == "bell and [31mred evil<U+202E>txt.exe"


def test_link_keeps_its_target_and_shows_bidi_in_it() -> None:
    fmt = format_of(rendered("[docs](https://example.org/a)"), "docs")
    assert fmt.isAnchor()
    assert fmt.anchorHref() == "https://example.org/a"


def test_a_scripting_link_is_plain_text() -> None:
    document = rendered("[x](javascript:alert(1))")
    assert not format_of(document, "x").isAnchor()


def test_ordered_item_takes_the_ordinal_of_its_place() -> None:
    document = SafeDocument()
    fill(document, "1. third", TextStyle(ordinal=3))
    assert document.firstBlock().blockFormat().property(MARKER_PROPERTY) == "3."
    fill(document, "- a\n  1. b\n  1. c\n- d", TextStyle())
    markers = []
    block = document.begin()
    while block.isValid():
        markers.append(block.blockFormat().property(MARKER_PROPERTY))
        block = block.next()
    assert markers == ["•", "1.", "2.", "•"]


@pytest.mark.parametrize(
    "source",
    [
        ">" * 2000 + " deep",
        "- " * 300 + "x",
        "*" * 3000,
        "[" * 3000,
        "`" * 3000,
        "$" * 3000,
        "\\(" * 1500,
        "![" * 1500,
        "<" * 4000,
        "_a" * 2000,
    ],
)
def test_markup_bombs_are_cheap(source: str) -> None:
    best = 1e9
    for _ in range(2):
        start = time.thread_time()
        document = rendered(source[:4096])
        document.setTextWidth(600)
        document.size()
        best = min(best, time.thread_time() - start)
    assert best < 0.5
