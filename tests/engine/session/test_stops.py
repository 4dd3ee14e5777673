"""Stop strings are found wherever the stream is cut, and never shown."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.session.stops import StopMatcher

letters = st.text("ab<", max_size=30)


@given(letters, st.lists(st.text("ab<", min_size=1, max_size=4), max_size=3), st.data())
@settings(max_examples=300, deadline=None)
def test_shown_text_is_what_lies_before_the_first_stop(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    matcher = StopMatcher(stops)
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    shown = "".join(matcher.push(piece) for piece in pieces) + matcher.flush()
    # Which stop is found first may depend on the cut, but nothing shown ever holds one, and nothing is lost without one.
    assert text.startswith(shown)
    assert not any(stop in shown for stop in stops)
    assert matcher.stopped == any(stop in text for stop in stops)
    assert matcher.stopped or shown == text


def test_text_is_held_back_only_while_it_could_be_a_stop() -> None:
    matcher = StopMatcher(["###"])
    assert matcher.push("hello #") == "hello "
    assert matcher.push("1") == "#1"
    assert matcher.push(" ##") == " "
    assert matcher.push("# more") == ""
    assert matcher.stopped
    assert matcher.push("later") == ""
