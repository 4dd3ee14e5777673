"""Weights copied into memory of their own on the nodes where a placement wants them, cut as its ops read them.

A slice gets its room when a descriptor first asks for its address; `fill` brings the bytes afterwards, read by threads that are
pinned to the node, so that first touch does what a refused policy would have done. Slices that another placement of the same
model has are shared with it; those that it has on another node are the same memory, whose pages follow (mbind with MF_MOVE).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.arch.units import UnitId
from engine.errors import Cancelled, OutOfMemory
from engine.hardware.memory import free_bytes
from engine.quants.formats import BY_ID
from engine.runtime.node_memory import Meant, NodeMemory
from engine.runtime.weights import Weights, no_pause
from kernels_pyx.arena import Arena
from kernels_pyx.executor import AbortFlag

PIECE_BYTES = 8 << 20
"""Read or moved at a time: progress is told and a cancel noticed as often."""
MAX_LOADERS = 4
"""Threads that read for one node."""
HUGE_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Slice:
    """Of a tensor with rows of n_in values: n_matrices matrices of `period` rows each; of each the rows [first, first + rows), of
    these the values [column, column + width)."""

    tensor: str
    n_in: int
    n_matrices: int
    period: int
    first: int
    rows: int
    column: int
    width: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A slice in memory: rows of `stride` bytes side by side, matrix after matrix. nodes: where it is meant to lie."""

    arena: Arena
    nodes: tuple[int, ...]
    stride: int

    @property
    def address(self) -> int:
        """Of its first byte."""
        return self.arena.address

    @property
    def meant(self) -> Meant:
        """Where its pages are meant to lie."""
        return Meant(self.nodes, self.arena.address, self.arena.nbytes)


_Key = tuple[UnitId, Slice]


class NodeWeights:
    """The slices of one placement. Used by one thread at a time."""

    def __init__(self, weights: Weights, memory: NodeMemory, beside: NodeWeights | None = None) -> None:
        self._weights = weights
        self.memory = memory
        self._beside = {} if beside is None else beside.held
        self.held: dict[_Key, Stored] = {}
        self._new: list[_Key] = []
        self._following: list[tuple[Stored, Stored]] = []

    def place(self, unit: UnitId, part: Slice, nodes: Sequence[int]) -> Stored:
        """The slice of a unit, on these nodes from `fill` on; its address does not change.

        Raises:
            OutOfMemory: the system maps no more.
        """
        key, where = (unit, part), tuple(nodes)
        found = self.held.get(key)
        if found is not None:
            return found
        known = self._beside.get(key)
        if known is None:
            stride = _row_bytes(self._weights.matrix(part.tensor, part.n_in).type_id, part.width)
            found = Stored(self._room(part.n_matrices * part.rows * stride, where), where, stride)
            self._new.append(key)
        elif known.nodes == where:
            found = known
        else:
            found = Stored(known.arena, where, known.stride)
            self._following.append((known, found))
        self.held[key] = found
        return found

    def _room(self, nbytes: int, nodes: tuple[int, ...]) -> Arena:
        try:
            arena = Arena(nbytes, huge=nbytes >= HUGE_BYTES)
        except MemoryError as error:
            raise OutOfMemory(f"the weights need {nbytes:,} bytes more of memory than the system maps") from error
        self.memory.begin(arena.address, arena.nbytes, nodes)
        return arena

    @property
    def new_bytes(self) -> int:
        """What `fill` will read."""
        return sum(self.held[key].arena.nbytes for key in self._new)

    def bytes_on(self) -> dict[int, int]:
        """Bytes by node, as they are meant to lie."""
        found: dict[int, int] = {}
        for one in self.held.values():
            each, rest = divmod(one.arena.nbytes, len(one.nodes))
            for i, node in enumerate(one.nodes):
                found[node] = found.get(node, 0) + each + (rest if i == 0 else 0)
        return found

    @property
    def meant(self) -> tuple[Meant, ...]:
        """Where everything is meant to lie."""
        return tuple(one.meant for one in self.held.values())

    def fill(
        self,
        progress: Callable[[int, int], None],
        abort: AbortFlag,
        pause: Callable[[float], None] = no_pause,
    ) -> int:
        """Brings what is not there yet; its bytes. progress(done, total).

        Raises:
            Cancelled: the flag was set. OutOfMemory: more than is free. ModelChanged: the file is gone.
        """
        total = self.new_bytes
        if total > free_bytes():
            raise OutOfMemory(f"the weights need {total:,} bytes of memory and {free_bytes():,} are free; use a smaller model")
        self._follow(abort, pause)
        progress(0, total)
        _Loading(self._weights, self.memory, progress, total, abort, pause).run((key[1], self.held[key]) for key in self._new)
        self.memory.make_sure([self.held[key].meant for key in self._new])
        self._new.clear()
        return total

    def _follow(self, abort: AbortFlag, pause: Callable[[float], None]) -> None:
        """Pages of what lies on another node now go to the new one, piece by piece, while they are read."""
        for _, then in self._following:
            for at in range(0, then.arena.nbytes, PIECE_BYTES):
                if abort.is_set:
                    raise Cancelled("the move was stopped")
                started = time.perf_counter()
                self.memory.follow(then.address + at, min(PIECE_BYTES, then.arena.nbytes - at), then.nodes)
                pause(time.perf_counter() - started)

    def undo(self) -> None:
        """The placement will not be: what followed goes back to where it was."""
        for now, _ in self._following:
            self.memory.follow(now.address, now.arena.nbytes, now.nodes)
        self._following.clear()
        self.held.clear()

    def close(self) -> None:
        """Lets go of the memory, which goes back where no other placement shares it. Idempotent."""
        self.held.clear()
        self._beside = {}


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows [first, end) of matrix `matrix` of a slice."""

    part: Slice
    to: Stored
    matrix: int
    first: int
    end: int


class _Loading:
    """Threads of each node read what belongs there."""

    def __init__(
        self,
        weights: Weights,
        memory: NodeMemory,
        progress: Callable[[int, int], None],
        total: int,
        abort: AbortFlag,
        pause: Callable[[float], None],
    ) -> None:
        self._weights, self._memory, self._abort, self._pause = weights, memory, abort, pause
        self._progress, self._total = progress, total
        # A node that is full of cached files lends pages of another one rather than to drop them.
        self._forgets = free_bytes() < 2 * total
        self._done = 0
        self._lock = threading.Lock()

    def run(self, slices: Iterable[tuple[Slice, Stored]]) -> None:
        found = sorted(slices, key=lambda one: self._weights.tensor(one[0].tensor).offset)
        pools: dict[tuple[int, ...], ThreadPoolExecutor] = {}
        waiting: list[Future[None]] = []
        try:
            for part, to in found:
                if to.nodes not in pools:
                    n = sum(len(self._memory.cpus.get(node, ())) for node in to.nodes)
                    workers = max(1, min(MAX_LOADERS, n))
                    pools[to.nodes] = ThreadPoolExecutor(workers, "node", initializer=self._memory.pin, initargs=(to.nodes,))
                waiting += [pools[to.nodes].submit(self._bring, piece) for piece in _pieces(part, to)]
            for one in waiting:
                one.result()
        finally:
            for pool in pools.values():
                pool.shutdown(cancel_futures=True)

    def _bring(self, piece: _Piece) -> None:
        if self._abort.is_set:
            raise Cancelled("loading was stopped")
        started = time.perf_counter()
        part, stride = piece.part, piece.to.stride
        tensor = self._weights.tensor(part.tensor)
        whole = _row_bytes(tensor.type_id, part.n_in)
        start = (piece.matrix * part.period + part.first + piece.first) * whole
        room = np.frombuffer(memoryview(piece.to.arena), np.uint8)
        at = (piece.matrix * part.rows + piece.first) * stride
        into = room[at : at + (piece.end - piece.first) * stride]
        if part.width == part.n_in:
            self._weights.read_into(tensor, start, into)
        else:
            rows: npt.NDArray[np.uint8] = np.empty((piece.end - piece.first) * whole, np.uint8)
            self._weights.read_into(tensor, start, rows)
            column = _row_bytes(tensor.type_id, part.column)
            into.reshape(-1, stride)[:] = rows.reshape(-1, whole)[:, column : column + stride]
        if self._forgets and part.column + part.width == part.n_in:  # the last node's columns are read last, mostly
            self._weights.forget(tensor, start, (piece.end - piece.first) * whole)
        self._pause(time.perf_counter() - started)
        with self._lock:
            self._done += into.nbytes
            self._progress(self._done, self._total)


def _pieces(part: Slice, to: Stored) -> Iterator[_Piece]:
    step = max(1, PIECE_BYTES // (to.stride * part.n_in // part.width))
    for matrix in range(part.n_matrices):
        for first in range(0, part.rows, step):
            yield _Piece(part, to, matrix, first, min(part.rows, first + step))


def _row_bytes(type_id: int, width: int) -> int:
    """Bytes of so many values of a row, whole blocks."""
    form = BY_ID[type_id]
    return width // form.block * form.type_size
