"""What is shown for what people type into the filter of the board."""

from __future__ import annotations

import pytest

from app.ops.placement_cards import Card, Family
from app.qtmodels.placement_filter import CardFilter, parse_filter
from engine.api.pure import Numa, UnitId, UnitKind


def card(kind: UnitKind, family: Family, layer: int = -1, formats: str = "", **marks: bool) -> Card:
    return Card(UnitId(kind, layer), Numa(0), family, 1000, formats, **marks)


CARDS = (
    card("embed", "embed", formats="Q6_K"),
    card("mixer", "attention", 4, "Q6_K, 6.56 bits"),
    card("mixer", "recurrent", 5, "Q4_K"),
    card("kv", "kv", 4, "f16"),
    card("experts", "experts", 10, "Q4_K", pinned=True),
    card("experts", "experts", 21, "IQ2_XS", moved=True),
    card("ffn", "dense", 10),
    card("shared", "shared", 10),
    card("head", "head"),
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", range(9)),
        ("exp", [4, 5]),
        ("exp 10-20", [4]),
        ("EXPERTS 10..21", [4, 5]),
        ("exp 20-10", [4]),
        ("10", [4, 6, 7]),
        ("10-", [4, 5, 6, 7]),
        ("4, 21", [1, 3, 5]),
        ("att", [1, 2]),
        ("linear", [2]),
        ("kv", [3]),
        ("ffn", [6, 7]),
        ("shared dense", [6, 7]),
        ("output", [8]),
        ("pinned", [4]),
        ("moved", [5]),
        ("q6_k", [0, 1]),
        ("iq2", [5]),
        ("exp q4", [4]),
        ("nonsense", []),
    ],
)
def test_a_text_shows_the_cards_it_is_about(text: str, shown: list[int]) -> None:
    found = parse_filter(text)
    assert [i for i, one in enumerate(CARDS) if found.passes(one)] == list(shown)


def test_kinds_narrow_what_the_text_shows() -> None:
    found = parse_filter("10", frozenset({"ffn"}))
    assert [i for i, one in enumerate(CARDS) if found.passes(one)] == [6, 7]
    assert parse_filter("", frozenset()).passes(CARDS[0]) is False


def test_nothing_typed_is_open() -> None:
    assert parse_filter("  ").is_open
    assert CardFilter().is_open
    assert not parse_filter("x").is_open
    assert not parse_filter("", frozenset({"kv"})).is_open
