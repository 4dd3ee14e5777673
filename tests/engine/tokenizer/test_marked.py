"""Marked strings behave like strings and keep track of every character."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.tokenizer.marked import BROUGHT, OWN, Marked, holds_marks, join, mark, mask_of, runs

TEXT = st.text("ab <|>\n\té", max_size=12)

OPERATIONS = {
    "strip": lambda s: s.strip(),
    "strip of characters": lambda s: s.strip("a "),
    "lstrip": lambda s: s.lstrip(),
    "rstrip": lambda s: s.rstrip("\n"),
    "split": lambda s: s.split(),
    "split by": lambda s: s.split("a"),
    "split once": lambda s: s.split("a", 1),
    "split blanks once": lambda s: s.split(None, 1),
    "rsplit": lambda s: s.rsplit("a", 1),
    "rsplit blanks": lambda s: s.rsplit(None, 1),
    "splitlines": lambda s: s.splitlines(),
    "splitlines kept": lambda s: s.splitlines(True),
    "partition": lambda s: s.partition("b"),
    "rpartition": lambda s: s.rpartition("b"),
    "replace": lambda s: s.replace("a", "xyz"),
    "replace once": lambda s: s.replace("b", "", 1),
    "replace nothing": lambda s: s.replace("", "-"),
    "slice": lambda s: s[1:-1],
    "reverse": lambda s: s[::-1],
    "first": lambda s: s[:1],
    "iterate": list,
    "add": lambda s: s + "own",
    "added": lambda s: "own" + s,
    "times": lambda s: s * 2,
    "lower": lambda s: s.lower(),
    "upper": lambda s: s.upper(),
    "title": lambda s: s.title(),
    "capitalize": lambda s: s.capitalize(),
    "swapcase": lambda s: s.swapcase(),
    "casefold": lambda s: s.casefold(),
    "center": lambda s: s.center(20, "*"),
    "ljust": lambda s: s.ljust(20),
    "rjust": lambda s: s.rjust(20),
    "zfill": lambda s: s.zfill(20),
    "expandtabs": lambda s: s.expandtabs(),
    "translate": lambda s: s.translate({97: "b"}),
    "removeprefix": lambda s: s.removeprefix("a"),
    "removesuffix": lambda s: s.removesuffix("b"),
    "join": lambda s: s.join(["x", "y", "z"]),
    "format": lambda s: s.replace("{", "").format(1),
    "modulo": lambda s: (s.replace("%", "") + "%s") % ("x",),
    "json": json.dumps,
    "hash": hash,
    "equal": lambda s: (s == s + "", s in {s + ""}),
}


@pytest.mark.parametrize("name", OPERATIONS)
@given(TEXT)
def test_results_equal_those_of_plain_strings(name: str, text: str) -> None:
    operation = OPERATIONS[name]
    assert operation(Marked(text)) == operation(text)


KEEPERS = [
    n for n in OPERATIONS if n not in ("add", "added", "replace", "join", "json", "hash", "equal", "modulo", "format", "zfill")
]


@pytest.mark.parametrize("name", KEEPERS)
@given(TEXT)
def test_nothing_brought_becomes_own(name: str, text: str) -> None:
    result = OPERATIONS[name](Marked(text))
    for piece in [result] if isinstance(result, str) else result:
        assert mask_of(piece) == BROUGHT * len(piece)


@given(st.lists(st.tuples(TEXT, st.booleans()), max_size=6))
def test_runs_of_a_join_are_its_parts(parts: list[tuple[str, bool]]) -> None:
    joined = join([text if own else Marked(text) for text, own in parts])
    assert "".join(text for text, _ in runs(joined)) == "".join(text for text, _ in parts)
    expected = b"".join((OWN if own else BROUGHT) * len(text) for text, own in parts)
    assert mask_of(joined) == expected
    cut = runs(joined)
    assert all(type(text) is str and text for text, _ in cut)
    assert all(a[1] != b[1] for a, b in pairwise(cut))


def test_marks_survive_where_characters_stay() -> None:
    text = "<u>" + Marked("  hi  ") + "</u>"
    assert runs(text.replace(" ", "")) == [("<u>", True), ("hi", False), ("</u>", True)]
    assert runs(text.split("  ")[1]) == [("hi", False)]
    assert runs(text[2:5]) == [(">", True), ("  ", False)]


def test_mark_reaches_every_string_of_plain_data() -> None:
    marked = mark({"a": ["b", {"c": "d"}], "n": 1, "none": None})
    assert marked == {"a": ["b", {"c": "d"}], "n": 1, "none": None}
    assert holds_marks(marked["a"][1]["c"]) and holds_marks(list(marked["a"][1]))
    assert not holds_marks({"a": [1, "x", None]})
