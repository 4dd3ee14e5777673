"""Who holds which state slot: running answers, and snapshots to which later prompts go back. In plain Python.

A step reads one slot of a sequence and writes another; the one that it read is free again unless it is a snapshot. So a snapshot
costs no copy, only that its slot is not used again until it is the oldest of too many.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from engine.errors import EngineBug

NONE = -1
"""No slot."""
TAIL = 8
"""A snapshot of a prompt is taken so many tokens before its end: regenerate computes the last token again, and templates end a
prompt with a few tokens (who speaks now, an open or a closed thought) that the same message does not have in the next turn."""


@dataclass(slots=True)
class StateHold:
    """The slots of one sequence: `now` holds its state after all computed tokens, `next` will after the step under way.

    `mark` will hold the state after `mark_at` tokens.
    """

    now: int = NONE
    next: int = NONE
    mark: int = NONE
    mark_at: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state after `tokens` lies in `slot`."""

    tokens: array[int]
    slot: int


class StateSlots:
    """Slots of a model whose sequences have states; for other models it has none and does nothing."""

    def __init__(self, n_slots: int, n_snapshots: int) -> None:
        """n_snapshots: most snapshots; what is left of n_slots is for running sequences, two each, and one mark."""
        self._n_snapshots = n_snapshots
        self._free = list(range(n_slots - 1, -1, -1))
        self._users = [0] * n_slots
        self._snapshots: OrderedDict[bytes, Snapshot] = OrderedDict()  # by the bytes of their tokens, oldest first
        self.max_running = (n_slots - n_snapshots - 1) // 2

    @property
    def in_use(self) -> bool:
        """Whether sequences of this model have states."""
        return bool(self._users)

    def stops(self, tokens: array[int]) -> tuple[int, ...]:
        """The numbers of leading tokens after which there is a snapshot, fewest first; never all of them."""
        return tuple(
            sorted(
                len(one.tokens)
                for one in self._snapshots.values()
                if len(one.tokens) < len(tokens) and one.tokens == tokens[: len(one.tokens)]
            )
        )

    def resume(self, tokens: array[int], n: int) -> StateHold:
        """The hold of a sequence whose first n tokens are computed; n is 0 or one of `stops`."""
        if not n:
            return StateHold()
        key = tokens[:n].tobytes()
        self._snapshots.move_to_end(key)  # used: the last to go
        self._users[self._snapshots[key].slot] += 1
        return StateHold(now=self._snapshots[key].slot)

    def prepare(self, hold: StateHold, mark_at: int | None = None) -> None:
        """Gives the hold a slot to write, and one for the state after mark_at tokens. Asked again if a step was stopped."""
        if hold.next == NONE:
            hold.next = self._take()
        if mark_at is None:
            self._drop(hold.mark)
            hold.mark, hold.mark_at = NONE, 0
            return
        hold.mark_at = mark_at
        if hold.mark == NONE:
            hold.mark = self._take()

    def advance(self, hold: StateHold, tokens: array[int]) -> None:
        """The step is done. tokens: of the sequence, at least those that were computed."""
        if hold.next == NONE:
            return  # sequences have no states
        self._drop(hold.now)
        hold.now, hold.next = hold.next, NONE
        if hold.mark != NONE:
            self._keep(tokens[: hold.mark_at], hold.mark)
            self._drop(hold.mark)
            hold.mark, hold.mark_at = NONE, 0

    def end(self, hold: StateHold, tokens: array[int]) -> None:
        """The sequence ends after the computed `tokens`: its state becomes a snapshot."""
        if hold.now != NONE and tokens:
            self._keep(tokens, hold.now)
        for slot in (hold.now, hold.next, hold.mark):
            self._drop(slot)
        hold.now = hold.next = hold.mark = NONE
        hold.mark_at = 0

    def _keep(self, tokens: array[int], slot: int) -> None:
        key = tokens.tobytes()
        if key in self._snapshots:
            self._snapshots.move_to_end(key)
            return
        self._users[slot] += 1
        self._snapshots[key] = Snapshot(tokens, slot)
        if len(self._snapshots) > self._n_snapshots:
            _, oldest = self._snapshots.popitem(last=False)
            self._drop(oldest.slot)

    def _take(self) -> int:
        if not self._free:
            raise EngineBug("a sequence was admitted without a free state slot")
        slot = self._free.pop()
        self._users[slot] = 1
        return slot

    def _drop(self, slot: int) -> None:
        if slot == NONE:
            return
        self._users[slot] -= 1
        if not self._users[slot]:
            self._free.append(slot)

    def held(self) -> Iterator[int]:
        """Slots that a sequence or a snapshot holds."""
        return (slot for slot, users in enumerate(self._users) if users)
