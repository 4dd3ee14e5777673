"""The splitter: sources joined are the text, pieces give the blocks of the whole, frozen blocks stay."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.chat.markdown import CHUNK, Block, Splitter, split

_PARTS = [
    "plain words", "# heading", "- item", "  continuation", "1. one", "2. two", "```python", "```", "~~~", "x = 1", "", "",
    "> quote", "| a | b |", "|---|---|", "$$", "$$x^2$$", "\\[", "\\]", "<think>", "</think>", "before </think> after",
    "---", "***", "    code", "中文 `code` **bold**", "\t- tab", "a" * 50, "<", "<thi",
]  # fmt: skip
texts = st.lists(st.sampled_from(_PARTS), max_size=14).map("\n".join)


def feed(text: str, pieces: list[str]) -> tuple[Block, ...]:
    splitter = Splitter()
    seen = ""
    for piece in pieces:
        frozen = list(splitter.closed)
        splitter.push(piece)
        seen += piece
        assert splitter.closed[: len(frozen)] == frozen
        assert "".join(block.source for block in (*splitter.closed, *splitter.tail())) == seen
    splitter.finish()
    return tuple(splitter.closed)


def cut(text: str, seed: int) -> list[str]:
    rng = random.Random(seed)
    pieces = []
    while text:
        n = rng.randint(1, 9)
        pieces.append(text[:n])
        text = text[n:]
    return pieces


@settings(max_examples=200, deadline=None)
@given(texts, st.integers(0, 10_000))
def test_pieces_give_the_blocks_of_the_whole(text: str, seed: int) -> None:
    whole = split(text)
    assert "".join(block.source for block in whole) == text
    assert feed(text, cut(text, seed)) == whole


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=300), st.integers(0, 100))
def test_any_text_is_preserved(text: str, seed: int) -> None:
    assert feed(text, cut(text, seed)) == split(text)


def test_an_endless_line_is_cut_alike_in_pieces_and_whole() -> None:
    text = "word " * 4000 + "\n" + "x" * 3 * CHUNK
    whole = split(text)
    assert "".join(block.source for block in whole) == text
    assert max(len(block.source) for block in whole) <= 2 * CHUNK
    assert feed(text, cut(text, 5)) == whole


def kinds(text: str) -> list[str]:
    return [block.kind for block in split(text)]


def test_kinds_of_an_ordinary_answer() -> None:
    parts = {
        "prose": "Intro:\n\n",
        "table": "| a | b |\n|---|---|\n| 1 | 2 |\n\n",
        "code": "Then\n```python\nx = 1\n\ny = 2\n```\n",
        "heading": "# Title\n",
        "list": "- a\n- b\n\n  more\n\n",
        "math": "End\n\n$$\nx\n$$\n",
        "rule": "---\n> q\n",
    }
    expected = ["prose", "table", "prose", "code", "heading", "list", "prose", "math", "rule", "quote"]
    assert kinds("".join(parts.values())) == expected


def test_code_block_carries_its_language() -> None:
    assert split("```rust title\nfn main() {}\n```\n")[0].info == "rust"


def test_a_longer_fence_holds_a_shorter_one() -> None:
    assert kinds("````\n```\ninner\n```\n````\nafter\n") == ["code", "prose"]


def test_ordered_items_are_numbered_by_position() -> None:
    blocks = split("3. a\n3. b\n\n" + "3. c\n" * 12 + "- d\n")
    assert [(block.kind, block.info) for block in blocks] == [("list", "3"), ("list", "15"), ("list", "")]


def test_think_ends_within_a_line() -> None:
    blocks = split("<think>\nhm\n</think>The answer")
    assert [(block.kind, block.source) for block in blocks] == [("think", "<think>\nhm\n</think>"), ("prose", "The answer")]


def test_half_a_think_tag_is_not_shown() -> None:
    splitter = Splitter()
    splitter.push("<thi")
    assert [block.kind for block in splitter.tail()] == ["blank"]


def test_table_after_a_paragraph_line_keeps_that_line() -> None:
    blocks = split("text\n| a | b |\n|---|---|\n| 1 | 2 |\nafter\n")
    assert [block.kind for block in blocks] == ["prose", "table", "prose"]


def test_unclosed_math_with_a_blank_line_is_prose() -> None:
    assert kinds("$$\nnever closed\n\nnext\n") == ["prose", "prose"]


@pytest.mark.parametrize("marker", ["-", "*", "+", "7."])
def test_fence_inside_an_item_stays_in_it(marker: str) -> None:
    assert kinds(f"{marker} a\n\n    ```\n\n    - not an item\n    ```\n\n{marker} b\n") == ["list"]
