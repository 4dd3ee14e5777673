"""Cuts text at special tokens, before anything else looks at it. Control tokens count only where the text is trusted, so that
what people, tools and files bring can never speak for the template."""

from __future__ import annotations

from collections.abc import Sequence

Fragment = tuple[int, int, int | None]
"""Start and end in the text, and the token that stands there, or None for text that is still to be merged."""


class Partitioner:
    """Finds special tokens: `control` only in trusted text, `user_defined` everywhere; the longest first, over the whole text."""

    def __init__(self, control: Sequence[tuple[str, int]], user_defined: Sequence[tuple[str, int]]) -> None:
        everything = [(text, i, True) for text, i in control if text] + [(text, i, False) for text, i in user_defined if text]
        self._specials = sorted(everything, key=lambda special: -len(special[0]))

    def split(self, text: str, trusted: Sequence[tuple[int, int]], always: frozenset[int] = frozenset()) -> list[Fragment]:
        """The fragments of `text` in order, none empty. trusted: disjoint, ascending ranges in which control tokens count;
        always: control tokens that count everywhere this time."""
        fragments: list[Fragment] = [(0, len(text), None)] if text else []
        everywhere = ((0, len(text)),)
        for special, token, is_control in self._specials:
            allowed = trusted if is_control and token not in always else everywhere
            if special in text and allowed:
                fragments = self._cut(text, fragments, special, token, allowed)
        return fragments

    @staticmethod
    def _cut(
        text: str, fragments: list[Fragment], special: str, token: int, allowed: Sequence[tuple[int, int]]
    ) -> list[Fragment]:
        result: list[Fragment] = []
        for start, end, owner in fragments:
            if owner is not None:
                result.append((start, end, owner))
                continue
            done, at = start, text.find(special, start, end)
            while at >= 0:
                after = at + len(special)
                if any(low <= at and after <= high for low, high in allowed):
                    if at > done:
                        result.append((done, at, None))
                    result.append((at, after, token))
                    done = after
                    at = text.find(special, after, end)
                else:
                    at = text.find(special, at + 1, end)
            if end > done:
                result.append((done, end, None))
        return result


def trusted_ranges(parts: Sequence[tuple[str, bool]]) -> tuple[str, list[tuple[int, int]]]:
    """The joined text of the parts and the ranges of those marked True, adjacent ones merged."""
    ranges: list[tuple[int, int]] = []
    at = 0
    for text, trusted in parts:
        end = at + len(text)
        if trusted and end > at:
            if ranges and ranges[-1][1] == at:
                ranges[-1] = (ranges[-1][0], end)
            else:
                ranges.append((at, end))
        at = end
    return "".join(text for text, _ in parts), ranges
