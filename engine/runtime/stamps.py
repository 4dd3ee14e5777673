"""When what was done in one measured step, as executors note it: pieces of lanes with marks on the host's monotonic clock.

Cards that run beside the CPU stamp their exchanges by clocks of their own. What was sent before it was received says how those
stand to the host's: no clock is ever asked for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from engine.program.plan import Lane, Plan

I64 = npt.NDArray[np.int64]

HOP_NS = 3000
"""From a flag that is set to the end of the wait for it, on cards of today two to five microseconds."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Ops [first, end) of a lane. marks: nanoseconds, either when each op began and when the last one ended, or only when the
    first began and the last ended. wait: the device waited meanwhile."""

    lane: Lane
    first: int
    end: int
    marks: I64
    wait: bool = False


@dataclass(frozen=True, slots=True)
class CardStamps:
    """Lane `lane` of a plan by its card's clock, in nanoseconds: its head, and [n_flags, 2] from when to when it waited at a
    flag, or when it set it (twice the same); flags of others hold anything."""

    lane: int
    began: int
    flags: I64


@dataclass(frozen=True, slots=True)
class Beside:
    """Lanes that ran side by side. host: [n_flags, 2] of the CPU's lane, monotonic."""

    plan: Plan
    host: I64
    cards: tuple[CardStamps, ...]


@dataclass(frozen=True, slots=True)
class Stamps:
    """One step. began_ns, ended_ns: monotonic. beside: None where lanes took turns."""

    began_ns: int
    ended_ns: int
    pieces: tuple[Piece, ...] = field(repr=False)
    beside: Beside | None = None

    def all_pieces(self) -> tuple[Piece, ...]:
        """Those of cards too."""
        return self.pieces if self.beside is None else (*self.pieces, *card_pieces(self.beside, self.began_ns, self.ended_ns))


def cpu_piece(lane: Lane, first: int, end: int, op_ns: I64, ended_ns: int) -> Piece:
    """What the CPU's program says of its ops, each by how long it took. It looks at the step before the first one begins."""
    spent = op_ns[first:end]
    return Piece(lane, first, end, ended_ns - int(spent.sum()) + np.concatenate(([0], np.cumsum(spent))))


def card_pieces(beside: Beside, began_ns: int, ended_ns: int) -> list[Piece]:
    """What cards did between their exchanges, and their waits."""
    found = []
    offsets = card_offsets(beside, began_ns, ended_ns)
    for card in beside.cards:
        lane = beside.plan.lanes[card.lane]
        meetings = sorted(
            (one.send if one.source == card.lane else one.recv, one.flag, one.target == card.lane)
            for one in beside.plan.exchanges
            if card.lane in (one.source, one.target)
        )
        at, since = 0, card.began + offsets[card.lane]
        for op, flag, waits in meetings:
            begin, end = (int(stamp) + offsets[card.lane] for stamp in card.flags[flag])
            if op > at:
                found.append(Piece(lane, at, op, np.array((since, begin))))
            if waits:
                found.append(Piece(lane, op, op + 1, np.array((begin, end)), wait=True))
            at, since = op + 1, end
        if at < len(lane.ops):
            found.append(Piece(lane, at, len(lane.ops), np.array((since, ended_ns))))
    return found


def card_offsets(beside: Beside, began_ns: int, ended_ns: int) -> dict[int, int]:
    """By lane, what is added to a card's clock to make it the host's.

    A card begins after the step and ends before it, and nothing is received before it is sent: these leave a few microseconds.
    """
    plan, cards = beside.plan, {card.lane: card for card in beside.cards}
    low = {lane: began_ns - card.began for lane, card in cards.items()}
    high = {lane: ended_ns - int(max(card.began, *_own(plan, card))) for lane, card in cards.items()}
    for _ in range(len(cards) + 1):
        for one in plan.exchanges:
            source, target = cards.get(one.source), cards.get(one.target)
            sent = int((beside.host if source is None else source.flags)[one.flag, 1])
            got = int((beside.host if target is None else target.flags)[one.flag, 1])
            if target is not None:
                low[one.target] = max(low[one.target], (0 if source is None else low[one.source]) + sent - got)
            if source is not None:
                high[one.source] = min(high[one.source], (0 if target is None else high[one.target]) + got - sent)
    return {lane: low[lane] + max(0, min((high[lane] - low[lane]) // 2, HOP_NS)) for lane in cards}


def _own(plan: Plan, card: CardStamps) -> list[int]:
    """The ends of what a card did at its flags."""
    flags = [one.flag for one in plan.exchanges if card.lane in (one.source, one.target)]
    return card.flags[flags, 1].tolist() or [card.began]
