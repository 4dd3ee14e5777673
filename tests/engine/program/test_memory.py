"""Arena layout: whatever lives together lies apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.program.memory import ALIGN, Life, lay_out

lives = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(0, 30), st.integers(0, 10)).map(lambda one: (one[0], one[1], one[1] + one[2])),
    max_size=25,
).map(lambda rows: [Life(f"b{i}", *row) for i, row in enumerate(rows)])


@given(lives)
def test_buffers_that_live_together_never_overlap(rows: list[Life]) -> None:
    layout = lay_out(rows)
    for i, a in enumerate(rows):
        start = layout.offsets[a.name]
        assert start % ALIGN == 0 and start + a.nbytes <= layout.nbytes
        for b in rows[:i]:
            if a.first <= b.last and b.first <= a.last:
                other = layout.offsets[b.name]
                assert start + a.nbytes <= other or other + b.nbytes <= start


def test_buffers_that_never_meet_share_bytes() -> None:
    layout = lay_out([Life("a", 1000, 0, 1), Life("b", 1000, 2, 3), Life("c", 500, 1, 2)])
    assert layout.offsets["a"] == layout.offsets["b"] == 0
    assert layout.nbytes == 1024 + 512
