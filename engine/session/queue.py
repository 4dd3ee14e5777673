"""What answers are at, for whoever watches: who waits, how far prompts are read, whether one goes round in circles."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from engine.session.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Queue:
    """n_waiting: requests that wait for their turn. prompt_done of prompt_tokens: of prompts that are being read.

    n_repeated: the longest run of one token at the end of an answer.
    """

    n_waiting: int = 0
    prompt_tokens: int = 0
    prompt_done: int = 0
    n_repeated: int = 0


def queue_of(sequences: Iterable[Sequence]) -> Queue:
    """What these are at. Any thread: counts may be of two moments."""
    waiting = tokens = done = repeated = 0
    for one in sequences:
        waiting += one.phase == "waiting"
        if one.phase == "prefill":
            tokens, done = tokens + one.n_prompt, done + min(one.n_prompt, one.table.n_tokens)
        elif one.phase == "decode":
            repeated = max(repeated, _run(one.tokens, one.n_prompt))
    return Queue(waiting, tokens, done, repeated)


def _run(tokens: array[int], begin: int) -> int:
    """How often the last token stands at the end, not counting those before `begin`."""
    at = last = len(tokens)
    while at > begin and tokens[at - 1] == tokens[last - 1]:
        at -= 1
    return last - at
