"""CardFilter: which cards of the board are shown: kinds, layers and words such as `exp 10-20`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from app.ops.placement_cards import Card, Family, Kind

_RANGE = re.compile(r"(\d{1,6})(?:(-|–|\.\.)(\d{1,6})?)?")
_LAST = 1_000_000
_WORDS: Mapping[str, tuple[Family, ...]] = {
    "attention": ("attention", "recurrent"),
    "linear": ("recurrent",),
    "cache": ("kv", "state"),
    "kv": ("kv", "state"),
    "state": ("state",),
    "ffn": ("dense", "shared", "router"),
    "dense": ("dense",),
    "router": ("router",),
    "shared": ("shared",),
    "embedding": ("embed",),
    "head": ("head",),
    "output": ("head",),
    "experts": ("experts", "hot"),
    "hot": ("hot",),
}
_LEAST = 2
"""Letters that a word must have to stand for a family that begins with it; shorter ones are searched for."""


@dataclass(frozen=True, slots=True)
class CardFilter:
    """kinds None: all. families and ranges of layers are alternatives among themselves; every word must be in a card's text."""

    kinds: frozenset[Kind] | None = None
    families: frozenset[Family] = frozenset()
    ranges: tuple[tuple[int, int], ...] = ()
    words: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether every card passes."""
        return self.kinds is None and not (self.families or self.ranges or self.words)

    def passes(self, card: Card) -> bool:
        """Whether a card is shown."""
        if self.kinds is not None and card.kind not in self.kinds:
            return False
        if self.families and card.family not in self.families:
            return False
        if self.ranges and not any(first <= card.layer <= last for first, last in self.ranges):
            return False
        return all(_says(card, word) for word in self.words)


EVERYTHING = CardFilter()


def parse_filter(text: str, kinds: frozenset[Kind] | None = None) -> CardFilter:
    """What a text asks for: beginnings of names (`exp`), layers (`10-20`, `7`, `30-`), `pinned`, `moved`, types (`q4_k`)."""
    families: set[Family] = set()
    ranges: list[tuple[int, int]] = []
    words: list[str] = []
    for word in text.casefold().replace(",", " ").split():
        match = _RANGE.fullmatch(word)
        named = [found for name, found in _WORDS.items() if len(word) >= _LEAST and name.startswith(word)]
        if match is not None:
            ranges.append(_layers(match))
        elif named:
            families.update(family for found in named for family in found)
        else:
            words.append(word)
    return CardFilter(kinds, frozenset(families), tuple(ranges), tuple(words))


def _layers(match: re.Match[str]) -> tuple[int, int]:
    first = int(match[1])
    if match[2] is None:
        return first, first
    last = _LAST if match[3] is None else int(match[3])
    return min(first, last), max(first, last)


def _says(card: Card, word: str) -> bool:
    if word == "pinned":
        return card.pinned
    if word == "moved":
        return card.moved
    return word in card.label.casefold() or word in card.formats.casefold()
