"""A number of threads or a list of processors, as people give it."""

from __future__ import annotations

import pytest

from engine.errors import InvalidRequest
from engine.placement.threads import parse_threads


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", (0, ())),
        (" 0 ", (0, ())),
        ("12", (12, ())),
        ("3-3", (1, (3,))),
        ("16-23,0-7", (16, (*range(8), *range(16, 24)))),
        ("256", (256, ())),
    ],
)
def test_a_number_or_a_list(text: str, found: tuple[int, tuple[int, ...]]) -> None:
    assert parse_threads(text) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0-7,7", "processor 7 listed twice"),
        ("0-3,2-5", "processors 2-3 listed twice"),
        ("7-3", "is no list of processors; write it like 0-7,16-23"),
        ("-2", "is no list of processors"),
        ("²", "is no list of processors"),
        ("257", "257 threads asked for; use 0 (one per core) to 256"),
        ("0-300", "301 threads asked for"),
        ("9" * 50, "threads asked for"),
    ],
)
def test_anything_else_is_one_sentence(text: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_threads(text)
    assert words in str(caught.value) and len(str(caught.value)) < 120
