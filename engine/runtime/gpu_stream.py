"""Experts that lie in the machine's memory, brought to a GPU layer by layer while it computes a long chunk of a prompt.

Their weights pass through a ring of two places on the device: while one layer's experts are multiplied, the next layer's arrive.
From some hundred rows on this is faster than the CPU, whose time grows with the rows; that of the bus does not.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from engine.arch.units import UnitId
from engine.placement.placement import Gpu, Numa, Placement
from engine.program.lane_ops import LaneOp
from engine.runtime.gpu import GpuMemory, guarded
from engine.runtime.gpu_bind import Run
from engine.runtime.gpu_weights import ALIGN, GpuWeights
from engine.runtime.weights import Weights

SLOTS = 2
"""Layers on the device at once: one in use, one arriving."""
PIECE_BYTES = 8 << 20
STREAMERS = 12
"""Threads that copy to pinned buffers, one alone at a tenth of what the bus takes."""
TELLING_ROWS = 32
LEAST_ROWS = 256
"""Rows from which experts are brought before it is known what either way takes."""


def with_experts_beside_routers(placement: Placement) -> Placement | None:
    """The placement with the experts of the CPU on the GPU of their layer's router; None where there are none to move."""
    places = dict(placement.units)
    moved = {
        unit: home
        for unit, where in placement.units
        if unit.kind == "experts" and isinstance(where, Numa) and isinstance(home := places.get(UnitId("ffn", unit.layer)), Gpu)
    }
    if not moved:
        return None
    return replace(placement, units=tuple((unit, moved.get(unit, where)) for unit, where in placement.units))


@dataclass(frozen=True, slots=True)
class _Piece:
    address: int
    into: Tensor


class ExpertStream:
    """The ring of one device. layers: the tensors of each layer whose experts pass through it."""

    def __init__(self, memory: GpuMemory, weights: Weights, into: GpuWeights, layers: Mapping[int, Sequence[str]]) -> None:
        """Takes the room of the ring and tells `into` where each tensor will lie.

        Raises:
            OutOfDeviceMemory.
        """
        self._device = memory.device
        self._positions = {layer: position for position, layer in enumerate(sorted(layers))}
        tensors = {layer: [weights.tensor(name) for name in names] for layer, names in layers.items()}
        slot = max(sum(-(-one.nbytes // ALIGN) * ALIGN for one in found) for found in tensors.values())
        ring = memory.allocate((SLOTS * slot,), torch.uint8, "workspace", "the ring through which experts pass")
        self._pieces: list[list[_Piece]] = []
        for position, layer in enumerate(sorted(layers)):
            at = position % SLOTS * slot
            self._pieces.append([])
            for tensor in tensors[layer]:
                room = ring[at : at + tensor.nbytes]
                into.lend(tensor.name, room)
                at += -(-tensor.nbytes // ALIGN) * ALIGN
                for start in range(0, tensor.nbytes, PIECE_BYTES):
                    self._pieces[-1].append(_Piece(weights.address(tensor) + start, room[start : start + PIECE_BYTES]))
        self._threads = ThreadPoolExecutor(STREAMERS, "experts")
        self._own = threading.local()
        self._coming: dict[int, list[Future[None]]] = {}

    def hooks(self, ops: Sequence[LaneOp]) -> tuple[dict[int, Run], dict[int, Run]]:
        """(what comes before op i, what comes behind it) in a lane that multiplies with these experts."""
        before: dict[int, Run] = {0: self.start}
        behind: dict[int, Run] = {}
        for layer, position in self._positions.items():
            at = [i for i, op in enumerate(ops) if op.unit == UnitId("experts", layer)]
            if at:
                before[at[0]] = partial(self.arrive, position)
                behind[at[-1]] = partial(self.leave, position)
        return before, behind

    def start(self) -> None:
        """The first layers set off."""
        self.rest()
        for position in range(min(SLOTS, len(self._pieces))):
            self._fetch(position, None)

    def arrive(self, position: int) -> None:
        """Waits until a layer is there.

        Raises:
            DeviceLost.
        """
        for one in self._coming.pop(position, ()):
            one.result()

    def leave(self, position: int) -> None:
        """Behind what multiplies with a layer: its place is taken by the next but one."""
        if position + SLOTS >= len(self._pieces):
            return
        done = None
        if not self._device.emulated:
            done = torch.cuda.Event()
            done.record()
        self._fetch(position + SLOTS, done)

    def _fetch(self, position: int, after: torch.cuda.Event | None) -> None:
        self._coming[position] = [self._threads.submit(self._bring, piece, after) for piece in self._pieces[position]]

    def _bring(self, piece: _Piece, after: torch.cuda.Event | None) -> None:
        nbytes = piece.into.numel()
        if self._device.emulated:
            ctypes.memmove(piece.into.data_ptr(), piece.address, nbytes)
            return
        with guarded(self._device), torch.cuda.device(self._device.torch_device):
            if not hasattr(self._own, "buffer"):
                self._own.buffer = torch.empty(PIECE_BYTES, dtype=torch.uint8, pin_memory=True)
                self._own.stream = torch.cuda.Stream(self._device.torch_device)
            ctypes.memmove(self._own.buffer.data_ptr(), piece.address, nbytes)
            with torch.cuda.stream(self._own.stream):
                if after is not None:
                    self._own.stream.wait_event(after)
                piece.into.copy_(self._own.buffer[:nbytes], non_blocking=True)
            self._own.stream.synchronize()

    def rest(self) -> None:
        """Waits for what is still on its way and nobody asked for: the file's memory may be moved between steps."""
        for futures in self._coming.values():
            for one in futures:
                one.exception()
        self._coming.clear()

    def close(self) -> None:
        """Ends the threads. Idempotent."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._coming.clear()
        self._pieces.clear()


class StreamChoice:
    """Whether a chunk of a prompt goes with the CPU's experts or with streamed ones: whichever took less of late."""

    def __init__(self, possible: bool) -> None:
        self._possible = possible
        self._row_s: float | None = None
        self._stream_s: float | None = None

    def streams(self, n_rows: int) -> bool:
        """For a chunk of so many rows. The bus takes the same time for any number."""
        if not self._possible:
            return False
        if self._row_s is None or self._stream_s is None:
            return n_rows >= LEAST_ROWS
        return self._stream_s < n_rows * self._row_s

    def took(self, n_rows: int, seconds: float, *, streamed: bool) -> None:
        """What a chunk took; few rows say little."""
        if streamed:
            self._stream_s = seconds
        elif n_rows >= TELLING_ROWS:
            self._row_s = seconds / n_rows
