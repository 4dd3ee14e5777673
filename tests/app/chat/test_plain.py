"""Cleaning text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.chat.plain import break_long_lines, clean, has_hidden, isolate_bidi, mark_bidi


def test_controls_go_and_newline_and_tab_stay() -> None:
    assert clean("a\x00b\x1b\x85\tc\nd\ud800") == "ab\tc\nd"


def test_bidi_controls() -> None:
    assert mark_bidi("a\u202eb") == "a<U+202E>b"
    assert isolate_bidi("a\u202eb") == "\u2068a\u202eb\u2069"
    assert isolate_bidi("plain") == "plain"
    assert has_hidden("a\u2066") and has_hidden("\x01") and not has_hidden("中文 abc")


@given(st.text(alphabet="ab \n", max_size=200), st.integers(1, 20))
def test_broken_lines_are_short_and_lose_nothing(text: str, limit: int) -> None:
    broken = break_long_lines(text, limit)
    assert max(map(len, broken.split("\n"))) <= max(limit, 1)
    assert broken.replace("\n", "") == text.replace("\n", "")
