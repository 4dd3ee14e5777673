"""Blocks of tokens in turn with and without something, and what the difference is worth. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Compared:
    """Tokens a second, means over blocks; gain of the first over the second in parts of 1, and its standard error."""

    with_tok_s: float
    without_tok_s: float
    gain: float
    sigma: float
    n_pairs: int


class Trial:
    """Blocks in the order with, without, without, with, and so on: what drifts meanwhile cancels out.

    The first SETTLING tokens of a block are not timed: what lies in a cache is of the block before.
    """

    SETTLING = 2

    def __init__(self, n_block: int, n_pairs: int) -> None:
        self._n_block = max(n_block, self.SETTLING + 1)
        self._n_pairs = max(n_pairs, 2)
        self._rates: tuple[list[float], list[float]] = ([], [])
        self._tokens = self._timed = 0
        self._seconds = 0.0

    @property
    def _n_done(self) -> int:
        return len(self._rates[0]) + len(self._rates[1])

    @property
    def on(self) -> bool:
        """Whether the next token is one of `with`."""
        return self._n_done % 4 in (0, 3)

    @property
    def done(self) -> bool:
        """Whether there are as many blocks as were asked for."""
        return self._n_done >= 2 * self._n_pairs

    def add(self, n_tokens: int, seconds: float) -> None:
        """A step of the block under way."""
        if self.done:
            return
        if self._tokens >= self.SETTLING:
            self._timed += n_tokens
            self._seconds += seconds
        self._tokens += n_tokens
        if self._tokens >= self._n_block and self._seconds > 0:
            self._rates[not self.on].append(self._timed / self._seconds)
            self._tokens = self._timed = 0
            self._seconds = 0.0

    def result(self) -> Compared:
        """Of the whole pairs so far, at least one."""
        n = min(map(len, self._rates))
        ours, theirs = (rates[:n] for rates in self._rates)
        without = sum(theirs) / n
        gains = [(a - b) / without for a, b in zip(ours, theirs, strict=True)]
        mean = sum(gains) / n
        spread = math.sqrt(sum((one - mean) ** 2 for one in gains) / (n - 1) / n) if n > 1 else math.inf
        return Compared(sum(ours) / n, without, mean, spread, n)
