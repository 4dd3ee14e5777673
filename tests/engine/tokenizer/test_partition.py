"""Cutting text at special tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.tokenizer.partition import Partitioner, trusted_ranges

CUT = Partitioner([("<a>", 1), ("<a><b>", 2)], [("@@", 3), ("@@@", 4)])


def pieces(text: str, trusted: list[tuple[int, int]]) -> list[str | int]:
    return [token if token is not None else text[start:end] for start, end, token in CUT.split(text, trusted)]


def test_longest_special_wins_over_the_whole_text() -> None:
    text = "x<a>y<a><b>@@@@@"
    assert pieces(text, [(0, len(text))]) == ["x", 1, "y", 2, 4, 3]


def test_control_needs_trust_and_user_defined_does_not() -> None:
    assert pieces("<a>@@", []) == ["<a>", 3]


def test_special_across_a_border_of_trust_does_not_count() -> None:
    assert pieces("<a><a>", [(0, 4)]) == [1, "<a>"]
    assert pieces("<a><a>", [(1, 6)]) == ["<a>", 1]


def test_empty_text_has_no_fragments() -> None:
    assert CUT.split("", [(0, 0)]) == []


def test_adjacent_trusted_parts_are_one_range() -> None:
    assert trusted_ranges([("ab", True), ("", False), ("c", True), ("d", False), ("", True)]) == ("abcd", [(0, 3)])


@given(st.text("<ab>@ ", max_size=40), st.lists(st.tuples(st.text("<ab>@", max_size=6), st.booleans()), max_size=6))
def test_fragments_cover_the_text_in_order(text: str, parts: list[tuple[str, bool]]) -> None:
    text, trusted = trusted_ranges([(text, True), *parts])
    at = 0
    for start, end, _ in CUT.split(text, trusted):
        assert start == at and end > start
        at = end
    assert at == len(text)
