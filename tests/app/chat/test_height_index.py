"""Offsets and hit tests against plain sums."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.chat.height_index import HeightIndex

heights = st.lists(st.integers(1, 500), min_size=1, max_size=60)


@given(
    heights, st.lists(st.tuples(st.integers(0, 59), st.integers(1, 500)), max_size=20), st.lists(st.integers(1, 300), max_size=10)
)
def test_offsets_are_sums(start: list[int], changes: list[tuple[int, int]], more: list[int]) -> None:
    index = HeightIndex(start)
    plain = list(start)
    for height in more:
        index.append(height)
        plain.append(height)
    for i, height in changes:
        i %= len(plain)
        assert index.set(i, height) == height - plain[i]
        plain[i] = height
    assert [index.offset(i) for i in range(len(plain) + 1)] == [sum(plain[:i]) for i in range(len(plain) + 1)]
    assert index.total() == sum(plain)
    for y in range(0, sum(plain), 37):
        i = index.index_at(y)
        assert index.offset(i) <= y < index.offset(i + 1)


def test_index_at_is_clipped() -> None:
    index = HeightIndex([10, 20])
    assert (index.index_at(-5), index.index_at(29), index.index_at(1000)) == (0, 1, 1)
    assert HeightIndex().index_at(3) == 0
