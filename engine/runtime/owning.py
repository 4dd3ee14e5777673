"""Weights on their way into huge pages of our own: which parts of the files lie in small pages, and which of them are copied.

Made by the loader; advanced by the thread that steps, between steps and while it has nothing else to do, so that nobody reads
what is replaced. What was taken is given back, and lies in the mapped file again, when the system runs short of memory, and when
nobody reads it any more. Where a GPU is in use its driver is told of it (`pins`), so that what moves there later needs no copies.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, TypeVar

from engine.gguf.info import TensorInfo
from engine.hardware.memory import free_bytes, total_bytes
from engine.runtime.pins import Pins
from kernels_pyx.guard import MappedFile

T = TypeVar("T")
PIECE_BYTES = 16 << 20
"""Copied at a time by one thread: 4 to 20 ms, which an answer may have to wait, and what memory holds twice meanwhile."""
MAX_THREADS = 8
GAP_BYTES = 4 << 20
"""What lies between two tensors is taken along up to so many bytes: norms, biases."""
SHARE = 0.1
"""Of the time of steps: a dense model's piece saves its price within 20 tokens."""
LEAST_LEFT, SHARE_LEFT, MOST_LEFT = 2 << 30, 0.25, 8 << 30
"""Memory that is left to everybody else: a quarter of all there is, within bounds."""
SHORT = 0.25
"""When less than this part of what is left to others is free, what was taken goes back until twice as much is."""
LOOK_S = 1.0
"""How often free memory is looked at when nothing is taken any more."""
ENOUGH = 0.9
"""A piece of which so much lies in huge pages stays as it is."""
MAX_REFUSED = 3
"""So many pieces without huge pages, and the system has none for us."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole units of a shard. worth: the part of it that a decoded token reads."""

    shard: int
    offset: int
    nbytes: int
    worth: float


class Owning:
    """Takes the pieces that tokens read most first. One thread calls; the copying is done by n_threads."""

    def __init__(
        self,
        maps: Sequence[MappedFile],
        pieces: Sequence[Piece],
        n_threads: int,
        promised_bytes: int = 0,
        free: Callable[[], int] = free_bytes,
        total: int | None = None,
        taken: Sequence[Piece] = (),
        pins: Pins | None = None,
    ) -> None:
        """promised_bytes: what others of this process will still take; free: how much memory there is to take now, of total.

        taken: what has been taken already; of that, what has nothing of `pieces` that is read is given back, little by little.
        """
        self._maps = maps
        self._pins = pins
        read = reaches([one for one in pieces if one.worth > 0])
        there = reaches(taken)
        wanted = (one for one in pieces if one.worth > 0 and not there(one))
        self._left = sorted(wanted, key=lambda one: -one.worth)[::-1]
        self._taken = [one for one in taken if read(one)]
        self._unread = [one for one in taken if not read(one)]
        kept = set() if pins is None else {self._range(one) for one in (*taken, *(one for one in pieces if one.worth > 0))}
        self._on_the_way = [] if pins is None else [one for one in pins.ranges if one not in kept]
        """What a move has pinned of the file itself."""
        self._unpinned = [one for one in self._taken if pins is not None and not pins.holds(*self._range(one))]
        self._n_threads = max(1, min(n_threads, MAX_THREADS))
        self._threads: ThreadPoolExecutor | None = None
        self._free = free
        self.headroom_bytes = int(min(max(SHARE_LEFT * (total or total_bytes()), LEAST_LEFT), MOST_LEFT))
        self._keep_bytes = self.headroom_bytes + promised_bytes
        self._drop = free() - self._keep_bytes < 2 * sum(one.nbytes for one in self._left)
        self._refused = 0
        self._spare_s = 0.0
        self._price_s = 0.02
        self._looked = time.monotonic()

    @property
    def done(self) -> bool:
        """Whether nothing is left to take, to give back or to pin."""
        return not (self._left or self._unread or self._on_the_way or self._pins_more)

    @property
    def owned_bytes(self) -> int:
        """What has been taken so far and is read."""
        return sum(one.nbytes for one in self._taken)

    @property
    def _pins_more(self) -> bool:
        return bool(self._unpinned) and self._pins is not None and self._pins.has_room(PIECE_BYTES)

    @property
    def unread_bytes(self) -> int:
        """What nobody reads any more, and has not been given back yet."""
        return sum(one.nbytes for one in self._unread)

    def beside_steps(self, step_s: float) -> None:
        """After a step of step_s seconds: does what a tenth of that time pays for, and gives back where memory is short."""
        self._spare_s += SHARE * step_s
        if not self.done and self._spare_s >= self._price_s:
            self.advance()
            self._spare_s = 0.0
        self.relieve()

    def advance(self) -> None:
        """Gives back, takes or pins a piece for each thread. One that cannot be read stays mapped, and is the last."""
        started = time.monotonic()
        if self._on_the_way and self._pins is not None:
            gone, self._on_the_way = self._on_the_way[: 2 * self._n_threads], self._on_the_way[2 * self._n_threads :]
            for one in gone:
                self._pins.drop(*one)
        elif self._unread:
            batch, self._unread = self._unread[: self._n_threads], self._unread[self._n_threads :]
            self._taken += [one for one, back in zip(batch, self._each(self._give_back, batch), strict=True) if not back]
        elif self._left:
            self._take_batch()
        elif self._pins_more:
            batch, self._unpinned = self._unpinned[: self._n_threads], self._unpinned[self._n_threads :]
            self._each(self._pin, batch)
        if self.done:
            self._stop()
        self._price_s = time.monotonic() - started

    def _take_batch(self) -> None:
        batch, self._left = self._left[: -self._n_threads - 1 : -1], self._left[: -self._n_threads]
        left, self._left = self._left, []  # nothing is left unless all goes well
        if self._free() - self._keep_bytes < sum(one.nbytes for one in batch):
            return
        outcomes = self._each(self._take, batch)
        self._taken += [one for one, outcome in zip(batch, outcomes, strict=True) if outcome == "taken"]
        self._unpinned += [one for one, outcome in zip(batch, outcomes, strict=True) if outcome != "failed"]
        self._refused += outcomes.count("refused")
        if "failed" in outcomes:
            return
        if self._refused < MAX_REFUSED:
            self._left = left
        else:
            self._unpinned += left  # pages of the file, which cards read as well

    def _each(self, work: Callable[[Piece], T], batch: Sequence[Piece]) -> list[T]:
        """The work for each piece, by a thread each."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._n_threads, "weights")
        return list(self._threads.map(work, batch))

    def _take(self, piece: Piece) -> Literal["stays", "taken", "refused", "failed"]:
        mapped, where = self._maps[piece.shard], (piece.offset, piece.nbytes)
        if (mapped.in_huge_pages(*where) or 0) >= ENOUGH * piece.nbytes:
            return "stays"
        self._unpin(piece)
        try:
            mapped.own(*where, drop=self._drop)
        except OSError:
            return "failed"  # no memory, or the file has lost something, which whoever reads it will notice
        found = mapped.in_huge_pages(*where)
        if found is None or found >= ENOUGH * piece.nbytes or not self._give_back(piece):
            return "taken"
        return "refused"

    def _give_back(self, piece: Piece) -> bool:
        self._unpin(piece)
        try:
            self._maps[piece.shard].disown(piece.offset, piece.nbytes)
        except OSError:
            return False
        return True

    def _pin(self, piece: Piece) -> None:
        if self._pins is not None and not self._pins.holds(*self._range(piece)):
            self._pins.pin(*self._range(piece))

    def _unpin(self, piece: Piece) -> None:
        if self._pins is not None:
            self._pins.drop(*self._range(piece))

    def _range(self, piece: Piece) -> tuple[int, int]:
        """(address, bytes)."""
        return self._maps[piece.shard].address + piece.offset, piece.nbytes

    def relieve(self) -> None:
        """Gives back, the least read first, where the system has become short of memory. Looks once in LOOK_S at most."""
        if not (self._taken or self._unread) or time.monotonic() - self._looked < LOOK_S:
            return
        self._looked = time.monotonic()
        free = self._free()
        if free >= SHORT * self.headroom_bytes:
            return
        self._left, self._unpinned = [], []
        self._stop()
        self._unpin_the_file()
        while (there := self._unread or self._taken) and free < 2 * SHORT * self.headroom_bytes and self._give_back(there[-1]):
            free += there.pop().nbytes

    def _unpin_the_file(self) -> None:
        """Pages of the file can go again when the system needs them."""
        self._on_the_way = []
        if self._pins is None:
            return
        taken = {self._range(one) for one in (*self._taken, *self._unread)}
        for one in self._pins.ranges:
            if one not in taken:
                self._pins.drop(*one)

    def hand_over(self) -> tuple[Piece, ...]:
        """Ends; all that was taken and not given back."""
        taken = (*self._taken, *self._unread)
        self.close()
        return taken

    def _stop(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    def close(self) -> None:
        """Ends the threads; what was taken lives as long as the mapping. Idempotent."""
        self._left, self._taken, self._unread, self._unpinned, self._on_the_way = [], [], [], [], []
        self._stop()


def reaches(pieces: Iterable[Piece]) -> Callable[[Piece], bool]:
    """Whether a piece has bytes in common with one of `pieces`, which have none with each other."""
    order = sorted((one.shard, one.offset, one.offset + one.nbytes) for one in pieces)

    def meets(one: Piece) -> bool:
        at = bisect_left(order, (one.shard, one.offset + one.nbytes)) - 1
        return at >= 0 and order[at][0] == one.shard and order[at][2] > one.offset

    return meets


def pieces_of(maps: Sequence[MappedFile], tensors: Iterable[TensorInfo], shares: Mapping[str, float]) -> Iterator[Piece]:
    """Where the tensors lie, cut into pieces; shares: the part of a tensor, by name, that a decoded token reads."""
    runs: list[list[TensorInfo]] = []
    end = 0
    for tensor in sorted(tensors, key=lambda one: (one.shard, one.offset)):
        if not runs or runs[-1][-1].shard != tensor.shard or tensor.offset - end >= GAP_BYTES:
            runs.append([])
            end = 0
        runs[-1].append(tensor)
        end = max(end, tensor.offset + tensor.nbytes)
    for run in runs:
        first, end = run[0].offset, max(one.offset + one.nbytes for one in run)
        start, size = maps[run[0].shard].whole_units(first, end - first)
        read = [0.0] * -(-size // PIECE_BYTES)
        for tensor in run:
            low, high = max(tensor.offset - start, 0), min(tensor.offset + tensor.nbytes - start, size)
            for i in range(low // PIECE_BYTES, -(-high // PIECE_BYTES)):
                overlap = min(high, (i + 1) * PIECE_BYTES) - max(low, i * PIECE_BYTES)
                read[i] += max(0, overlap) * shares.get(tensor.name, 0.0)
        for i, nbytes in enumerate(read):
            at = i * PIECE_BYTES
            n = min(PIECE_BYTES, size - at)
            yield Piece(run[0].shard, start + at, n, nbytes / n)
