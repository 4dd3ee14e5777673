"""Which sequences the next step serves: first in, first out; all that decode together, then one chunk of one prompt.

Blocks are dealt out as texts grow, not for the longest that an answer may become: most end long before. When they run out, the
sequence that began last is paused: it gives its blocks back and waits in front of all others. What is left of them in the cache
is found again when it goes on, the rest is computed again. The oldest is never paused, so each comes to its end.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from engine.api.values import RequestId
from engine.session.block_manager import BlockManager
from engine.session.sequence import Sequence
from engine.session.states import TAIL, StateSlots

MAX_DECODE = 8
"""Sequences that decode in one step."""

SHARED_CHUNK = 128
"""Prompt tokens in a step while others decode: a longer chunk would stall their text for a noticeable time."""

AHEAD = 128
"""Tokens for which a sequence that is admitted has room, beside as many for each that runs: otherwise it would soon be paused."""


@dataclass(frozen=True, slots=True)
class Work:
    """One step: a decode batch, or the next `n_tokens` prompt tokens of one sequence."""

    phase: Literal["prefill", "decode"]
    sequences: tuple[Sequence, ...]
    n_tokens: int = 1


class Scheduler:
    """A sequence is admitted once there is room for its prompt and AHEAD more tokens."""

    def __init__(self, blocks: BlockManager, states: StateSlots, prefill_chunk: int) -> None:
        """prefill_chunk: most prompt tokens in one step."""
        self._blocks = blocks
        self._states = states
        self._chunk = prefill_chunk
        self._most = min(MAX_DECODE, states.max_running) if states.in_use else MAX_DECODE
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._decoded_last = False

    @property
    def n_ahead(self) -> int:
        """Requests that a new one would wait behind."""
        return len(self._waiting) + len(self._running)

    def add(self, sequence: Sequence) -> None:
        """Puts a sequence at the end of the queue."""
        self._waiting.append(sequence)

    def remove(self, sequence: Sequence, *, failed: bool = False) -> None:
        """Takes a sequence out, whatever it was doing, and gives back its blocks and its state: a snapshot, unless it failed."""
        if sequence in self._running:
            self._running.remove(sequence)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)
        sequence.phase = "ended"
        self._states.end(sequence.hold, sequence.tokens[: 0 if failed else sequence.table.n_tokens])
        self._blocks.release(sequence.table)

    def find(self, request_id: RequestId) -> Sequence | None:
        """The sequence of a request, if it has not ended."""
        return next((one for one in self.sequences() if one.request_id == request_id), None)

    def sequences(self) -> tuple[Sequence, ...]:
        """All that have not ended, oldest first."""
        return (*self._running, *self._waiting)

    def running(self) -> tuple[Sequence, ...]:
        """Those that have a table, oldest first."""
        return tuple(self._running)

    def admit(self) -> tuple[Sequence, ...]:
        """The sequences that start now, or go on: they have a table with the reused prefix."""
        admitted = []
        while self._waiting and len(self._running) < self._most and self._fits(self._waiting[0]):
            sequence = self._waiting.popleft()
            stops = self._states.stops(sequence.tokens) if self._states.in_use else None
            sequence.table = self._blocks.open(sequence.tokens, stops)
            if not sequence.n_computed:
                sequence.n_reused = sequence.table.n_tokens
            if self._states.in_use:
                sequence.hold = self._states.resume(sequence.tokens, sequence.table.n_tokens)
            sequence.phase = "prefill" if sequence.n_to_read else "decode"
            self._running.append(sequence)
            admitted.append(sequence)
        return tuple(admitted)

    def next(self) -> tuple[Work | None, tuple[Sequence, ...]]:
        """The next step, with its blocks and state slots, None when nothing runs; and the sequences that were paused for it,
        which wait now. Decode batches and prompt chunks take turns."""
        paused = []
        while (work := self._work()) is not None:
            wanted = [(one.table, one.table.n_tokens + work.n_tokens) for one in work.sequences]
            if self._blocks.has_room(wanted) or len(self._running) == 1:
                break
            paused.append(self._pause(self._running[-1]))
        if work is None:
            return None, tuple(paused)
        self._decoded_last = work.phase == "decode"
        for one in work.sequences:
            self._blocks.reserve(one.table, one.table.n_tokens + work.n_tokens)
            if self._states.in_use:
                self._states.prepare(one.hold, _mark(one, work.n_tokens) if work.phase == "prefill" else None)
        return work, tuple(paused)

    def _work(self) -> Work | None:
        decoding = tuple(one for one in self._running if one.phase == "decode")
        prefilling = next((one for one in self._running if one.phase == "prefill"), None)
        if decoding and not (prefilling and self._decoded_last):
            return Work("decode", decoding)
        if prefilling is None:
            return None
        chunk = min(self._chunk, SHARED_CHUNK) if decoding else self._chunk
        return Work("prefill", (prefilling,), self._blocks.cut(prefilling.table, chunk, prefilling.n_to_read))

    def _pause(self, sequence: Sequence) -> Sequence:
        """Takes a sequence's blocks and state away, until there is room again."""
        self._running.remove(sequence)
        self._waiting.appendleft(sequence)
        self._states.end(sequence.hold, sequence.tokens[: sequence.table.n_tokens])
        self._blocks.release(sequence.table)
        sequence.phase = "waiting"
        return sequence

    def _fits(self, sequence: Sequence) -> bool:
        return self._blocks.fits(_soon(sequence), ((one.table, _soon(one)) for one in self._running))


def _soon(sequence: Sequence) -> int:
    """The tokens that a sequence holds after AHEAD more."""
    return min(sequence.limit, len(sequence.tokens) + AHEAD)


def _mark(sequence: Sequence, n_tokens: int) -> int | None:
    """Where in the next n_tokens of a prompt the state is wanted as a snapshot."""
    at, done = sequence.n_prompt - TAIL, sequence.table.n_tokens
    return at if done < at <= done + n_tokens else None
