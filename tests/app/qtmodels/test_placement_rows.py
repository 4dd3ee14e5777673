"""How cards become rows: ranges of layers, open and closed groups, titles, and keys that keep their order."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from app.ops.placement_cards import ORDER, Card
from app.qtmodels.placement_filter import parse_filter
from app.qtmodels.placement_rows import MAX_RUNS, Layout, key_of, row_for, rows_of
from engine.api.pure import Numa, UnitId

GB = 1_000_000_000


def experts(*layers: int, **changes: object) -> tuple[Card, ...]:
    made = (Card(UnitId("experts", layer), Numa(0), "experts", 6 * GB, "Q4_K, 4.5 bits", 256) for layer in layers)
    return tuple(replace(one, **changes) for one in made)  # type: ignore[arg-type]


def attention(*layers: int, formats: str = "Q6_K, 6.56 bits") -> tuple[Card, ...]:
    return tuple(Card(UnitId("mixer", layer), Numa(0), "attention", GB // 10, formats) for layer in layers)


def texts(cards: tuple[Card, ...], layout: Layout | None = None) -> list[tuple[str, str, str]]:
    return [(row.title, row.detail, row.size) for row in rows_of(cards, layout or Layout())]


def test_layers_side_by_side_are_a_group() -> None:
    assert texts(attention(*range(31))) == [("Attention 0–30", "31 cards · Q6_K", "3.1 GB")]
    assert texts(experts(*range(4, 32))) == [("Experts 4–31", "28 layers, 256 experts each", "168 GB")]


def test_a_layer_on_its_own_is_a_card_with_its_whole_name() -> None:
    assert texts(experts(60)) == [("Experts, layer 60", "Q4_K", "6.0 GB")]


def test_layers_left_out_cut_groups() -> None:
    titles = [title for title, _, _ in texts(attention(0, 1, 2, 5, 8, 9))]
    assert titles == ["Attention 0–2", "Attention, layer 5", "Attention 8–9"]


def test_too_many_parts_are_one_group() -> None:
    every_other = attention(*range(0, 2 * (MAX_RUNS + 1), 2))
    assert texts(every_other) == [("Attention 0–12", "7 cards · Q6_K", "700 MB")]


def test_caches_say_what_they_are_for() -> None:
    cards = tuple(Card(UnitId("kv", i), Numa(0), "kv", GB // 10, "f16") for i in range(3))
    assert texts(cards, Layout(n_ctx=65536)) == [("KV 0–2", "3 cards · 64k tokens, f16", "300 MB")]


def test_types_that_differ_are_not_hidden() -> None:
    cards = attention(0, 1) + attention(2, formats="Q8_0")
    assert texts(cards) == [("Attention 0–2", "3 cards · Q6_K and others", "300 MB")]


def test_an_open_group_shows_its_cards_inside() -> None:
    cards = experts(4, 5, 6)
    rows = rows_of(cards, Layout(expanded=frozenset(card.id for card in cards)))
    assert [(row.title, row.inside) for row in rows] == [
        ("Experts 4–6", False),
        ("Layer 4", True),
        ("Layer 5", True),
        ("Layer 6", True),
    ]
    assert rows[0].expanded


def test_a_card_that_comes_from_elsewhere_opens_no_group() -> None:
    cards = experts(4, 5, 6)
    assert len(rows_of(cards, Layout(expanded=frozenset({cards[0].id})))) == 1


def test_without_groups_every_card_is_a_row() -> None:
    assert [title for title, _, _ in texts(attention(0, 1), Layout(grouped=False))] == [
        "Attention, layer 0",
        "Attention, layer 1",
    ]


def test_a_filter_is_applied_before_ranges_are_made() -> None:
    cards = attention(*range(10)) + experts(*range(10))
    layout = Layout(filter=parse_filter("exp 3-5"))
    assert [row.title for row in rows_of(cards, layout)] == ["Experts 3–5"]
    assert next(row.title for row in rows_of(cards, replace(layout, grouped=False))) == "Experts, layer 3"


def test_chosen_experts_are_a_part_of_the_size() -> None:
    assert texts(experts(4, n_hot=64, hot_bytes=1_600_000_000)) == [("Experts, layer 4", "Q4_K", "1.6 of 6.0 GB")]


def test_what_is_dragged_together_is_named_together() -> None:
    assert row_for(experts(4)).title == "Experts, layer 4"
    assert row_for(experts(4, 5, 6)).title == "Experts 4–6"
    assert row_for(attention(0) + experts(4)).title == "2 cards"
    assert row_for(attention(0) + experts(4)).detail == "Attention, Experts"
    hot = row_for(experts(4, 5, 6, n_hot=64, hot_bytes=1_600_000_000))
    assert (hot.title, hot.size) == ("Hottest 64 of 256", "4.8 GB")


@given(st.data())
def test_rows_are_sorted_by_key_and_hold_every_card_once(data: st.DataObject) -> None:
    rng = random.Random(data.draw(st.integers(0, 10_000)))
    cards = [*attention(*rng.sample(range(40), rng.randint(0, 30))), *experts(*rng.sample(range(40), rng.randint(0, 30)))]
    cards.sort(key=key_of)
    opened = frozenset(card.id for card in cards if rng.random() < 0.5)
    rows = rows_of(tuple(cards), Layout(grouped=rng.random() < 0.8, expanded=opened))
    assert [row.key for row in rows] == sorted(row.key for row in rows)
    assert len({row.key for row in rows}) == len(rows)
    shown = [card.id for row in rows if not (row.is_group and row.expanded) for card in row.cards]
    assert sorted(map(str, shown)) == sorted(str(card.id) for card in cards)


def test_every_family_has_its_place() -> None:
    assert len(set(ORDER)) == 11
