"""What pools of experts do between the steps of a model: what is missed often is brought, and how well that goes is known.

A step's choices decide what sets off with the next step, on a thread of its own; the tables of the step after that name it. Its
victim is named no more from the moment on at which it sets off. Nothing is on its way between steps, when the memory that
copies are made of may be moved.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from engine.errors import EngineError
from engine.placement.placement import Placement, Pool
from engine.runtime.choices import Chosen, MoeLayers
from engine.runtime.pool_carrier import Carrier
from engine.runtime.promotion import I32, I64, Move, Promotion
from engine.runtime.trial import Compared, Trial

log = logging.getLogger("engine")

Mode = Literal["promote", "keep", "off"]
SHARE = 0.5
"""Of a step's time, that bringing experts may take: else the step would wait for them."""
START_BYTES_S = 4e9
"""Bytes a second that are counted on before any have been brought."""
SMALLEST_BUDGET = 1
FIRST_CHECK, LATER_CHECKS = 256, 8192
"""Tokens after which it is measured whether promotion makes answers faster."""
CHECK_BLOCK, CHECK_PAIRS = 20, 4
LEAST_LOSS, SURE = 0.02, 3.0
"""It is switched off where tokens come slower by so much of 1, and by so many standard errors."""


class Slots(Protocol):
    """The pools on one GPU, see `engine.runtime.expert_slots`."""

    @property
    def pools(self) -> tuple[Pool, ...]:
        """What its placement says."""

    @property
    def expert_bytes(self) -> int:
        """Bytes of the largest expert."""

    def tell(self, tables: I32) -> None:
        """What lies where from the next step on, [n_pools, n_experts]."""

    def bring(self, fetches: Sequence[tuple[int, int, int]]) -> None:
        """Copies of (layer, expert, slot); all are there on return."""


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """The pool of one layer so far: passes of decoded tokens that it took and those it did not, moves, what it holds by slot."""

    layer: int
    device: str
    hits: int
    misses: int
    promotions: int
    experts: tuple[int, ...]


class PoolKeeper:
    """The pools of all GPUs of a model. Used by the thread that steps it."""

    def __init__(self, sides: Sequence[tuple[str, Slots]], moe: MoeLayers) -> None:
        """sides: of each GPU with pools its name and its slots, filled as their placement says."""
        self._sides = tuple(sides)
        self._pools = [(i, pool) for i, (_, slots) in enumerate(sides) for pool in slots.pools]
        self._first = np.cumsum([0, *(len(slots.pools) for _, slots in sides)]).tolist()
        self._policy = Promotion(moe.n_experts, [pool.experts for _, pool in self._pools])
        self._n_experts = moe.n_experts
        places = [moe.layers.index(pool.layer) for _, pool in self._pools]
        self._row_of = np.full(len(moe.layers), -1, np.int64)
        self._row_of[places] = np.arange(len(places))
        self._most_used = max((moe.used[place] for place in places), default=0)
        n = len(self._pools)
        self._hits, self._misses, self._moves = (np.zeros(n, np.int64) for _ in range(3))
        self.mode: Mode = "promote"
        self.switched_off = ""
        self._trial: tuple[Trial, Mode, Mode, Mode] | None = None
        self._planned: list[Move] = []
        self._rate = START_BYTES_S
        self._expert_bytes = max(slots.expert_bytes for _, slots in sides)
        self._told: tuple[bool, int] | None = None
        self._where: tuple[int, I64, I64] | None = None
        self._gaps: npt.NDArray[np.bool_] | None = None
        self._ids_room = np.zeros((n, 0), np.int64)
        self._passes = np.zeros(n, np.int64)
        self._checked = False
        self._next_check = FIRST_CHECK
        self._carrier = Carrier(self._bring)

    @property
    def _on(self) -> bool:
        return self._acting != "off"

    @property
    def _acting(self) -> Mode:
        """The mode of the next step: while two are compared, one of them."""
        if self._trial is None:
            return self.mode
        trial, ours, theirs, _ = self._trial
        return ours if trial.on else theirs

    def use(self, mode: Mode) -> None:
        """What pools do from the next step on; promotion that has switched itself off begins anew."""
        self.mode, self._trial, self._checked = mode, None, False
        self.switched_off = ""
        self._policy.worth.renew(self._policy.slot_of)

    def compare(self, mode: Mode, n_block: int, n_pairs: int) -> None:
        """From the next step on, blocks of tokens with `mode` (promote, keep) and with the one below it in turn."""
        self._policy.worth.renew(self._policy.slot_of)
        self._checked = False
        self._trial = Trial(n_block, n_pairs), mode, "keep" if mode == "promote" else "off", self.mode

    @property
    def comparing(self) -> bool:
        """Whether two modes are being compared because somebody asked."""
        return self._trial is not None and not self._checked

    def compared(self) -> tuple[Mode, Compared] | None:
        """What a comparison that has ended found, once; then pools are as they were before it."""
        if self._checked or self._trial is None or not self._trial[0].done:
            return None
        trial, mode, _, before = self._trial
        self._trial, self.mode = None, before
        return mode, trial.result()

    def begin(self) -> None:
        """A step is about to be enqueued. Raises: DeviceLost."""
        on = self._on
        told = on, self._policy.version
        if told != self._told:
            tables = self._policy.slot_of if on else np.full_like(self._policy.slot_of, -1)
            for i, (_, slots) in enumerate(self._sides):
                slots.tell(tables[self._first[i] : self._first[i + 1]])
            self._told = told
        if self._planned:
            moves, self._planned = self._planned, []
            self._carrier.send(moves)

    def _bring(self, moves: Sequence[Move]) -> None:
        for i, (_, slots) in enumerate(self._sides):
            mine = [move for move in moves if self._pools[move.layer][0] == i]
            slots.bring([(self._pools[move.layer][1].layer, move.expert, move.slot) for move in mine])

    def settle(self) -> None:
        """Waits for what is on its way. Raises: DeviceLost."""
        if not self._carrier.is_busy:
            return
        n = len(self._policy.coming)
        try:
            seconds = self._carrier.wait()
        except EngineError:
            self._policy.lost()
            raise
        self._policy.arrived()
        if n and seconds > 0:
            self._rate += 0.2 * (n * self._expert_bytes / seconds - self._rate)

    def end(self, chosen: Sequence[Chosen], phase: str, seconds: float) -> None:
        """A step is done. Raises: DeviceLost."""
        self.settle()
        if phase != "decode":
            return
        for one in chosen:
            if one.flat is not None:
                self._saw(self._ids(one.flat))
        acting = self._acting
        if self._trial is not None:
            self._trial[0].add(len(chosen), seconds)
        self._check(len(chosen))
        if acting == "promote" and (self.comparing or not self.switched_off):
            budget = max(SMALLEST_BUDGET, int(SHARE * seconds * self._rate / self._expert_bytes))
            self._planned = self._policy.plan(budget)
            for move in self._planned:
                self._moves[move.layer] += 1
            if not self._policy.worth.pays and self._trial is None:
                self._switch_off(self._policy.worth.why)

    def _check(self, n_tokens: int) -> None:
        """Now and then it is measured whether tokens come sooner with promotion than without."""
        if self._checked and self._trial is not None and self._trial[0].done:
            found = self._trial[0].result()
            self._trial, self._checked = None, False
            if found.gain < -LEAST_LOSS and found.gain < -SURE * found.sigma:
                self._switch_off(f"Tokens came {-100 * found.gain:.0f} % slower with promotion: it has been switched off.")
        if self._trial is None and self.mode == "promote" and not self.switched_off:
            self._next_check -= n_tokens
            if self._next_check <= 0:
                self._next_check, self._checked = LATER_CHECKS, True
                self._trial = Trial(CHECK_BLOCK, CHECK_PAIRS), "promote", "keep", self.mode

    def _switch_off(self, why: str) -> None:
        self.switched_off = why
        log.info("%s", why)

    def _saw(self, ids: I64) -> None:
        hits = self._policy.saw(ids)
        self._misses += self._passes
        if self._on:
            self._hits += hits
            self._misses -= hits

    def _ids(self, flat: I64) -> I64:
        """What a decoded row chose in the layers of pools, [n_pools, n_used], filled up with -1."""
        if self._where is None or self._where[0] != len(flat):
            self._where = len(flat), *self._sorted(flat)
        _, at, base = self._where
        np.take(flat, at, out=self._ids_room, mode="clip")
        np.subtract(self._ids_room, base, out=self._ids_room)
        if self._gaps is not None:
            self._ids_room[self._gaps] = -1
        return self._ids_room

    def _sorted(self, flat: I64) -> tuple[I64, I64]:
        """Where each choice of each pool stands in `flat`, the same for all tokens, and what to take off it."""
        rows = self._row_of[flat // self._n_experts]
        at = np.zeros((len(self._pools), self._most_used), np.int64)
        there = np.zeros(at.shape, bool)
        for row in range(len(self._pools)):
            found = np.flatnonzero(rows == row)
            at[row, : len(found)], there[row, : len(found)] = found, True
        self._gaps = None if there.all() else ~there
        self._passes = there.sum(axis=1)
        self._ids_room = np.zeros(at.shape, np.int64)
        return at, flat[at] // self._n_experts * self._n_experts

    def learned(self, placement: Placement) -> Placement:
        """The placement with what pools hold by now, where it has them as they were placed; contents change while it is asked."""
        known = {pool: replace(pool, experts=self._policy.experts(i)) for i, (_, pool) in enumerate(self._pools)}
        found = (known.get(pool, pool) for pool in placement.pools)
        pools = tuple(
            now if len(set(now.experts)) == len(pool.experts) else pool for pool, now in zip(placement.pools, found, strict=True)
        )
        return replace(placement, pools=pools)

    def figures(self) -> tuple[PoolFigures, ...]:
        """Of each pool so far."""
        return tuple(
            PoolFigures(
                pool.layer,
                self._sides[side][0],
                int(self._hits[i]),
                int(self._misses[i]),
                int(self._moves[i]),
                self._policy.experts(i),
            )
            for i, (side, pool) in enumerate(self._pools)
        )

    def forget(self) -> None:
        """Figures begin at 0."""
        for one in (self._hits, self._misses, self._moves):
            one[:] = 0

    def close(self) -> None:
        """Ends the thread. Idempotent."""
        with suppress(EngineError):
            self.settle()
        self._carrier.close()
