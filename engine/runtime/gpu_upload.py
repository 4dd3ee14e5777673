"""Bytes of the file to tensors of a GPU, through pinned memory.

What is only in the file is read by a few threads, each with a buffer. What the CPU multiplies with lies in memory already, mapped
or our own: threads without the interpreter carry it to a ring, from where the card takes one chunk after the other, unless the
card can read it where it lies (`gpu_direct`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from engine.errors import Cancelled, OutOfMemory
from engine.gguf.info import TensorInfo
from engine.runtime.driver import DRIVER
from engine.runtime.gpu import GpuDevice, GpuMemory, guarded
from engine.runtime.gpu_direct import Job, PinAhead, send_direct
from engine.runtime.pinned import Pinned
from engine.runtime.pins import Part
from engine.runtime.weights import Weights, no_pause
from kernels_pyx.executor import AbortFlag
from kernels_pyx.ferry import Ferry

STAGED_BYTES = 16 << 20
STAGERS = 4
"""Threads that read the file, each with a pinned buffer: one alone reads the page cache at a fifth of what PCIe takes."""
CHUNKS = 4
"""Of STAGED_BYTES, in the ring through which goes what is in memory."""
CARRIERS = 4
"""Threads that fill it; beside them the workers of the CPU go on."""
LOOK_S = 0.05
"""How often it is looked whether anybody still wants it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes [start, start + nbytes) of a tensor, on their way to `into`: uint8 [n, m], m bytes of the file a row."""

    tensor: TensorInfo
    start: int
    into: Tensor

    @property
    def nbytes(self) -> int:
        return self.into.numel()


class Uploader:
    """Brings pieces to one device. arrived(n): n bytes more are there; pause: see `Building`."""

    def __init__(
        self,
        memory: GpuMemory,
        weights: Weights,
        abort: AbortFlag,
        arrived: Callable[[int], None],
        pause: Callable[[float], None] = no_pause,
    ) -> None:
        self._memory = memory
        self._weights = weights
        self._abort = abort
        self._arrived = arrived
        self._pause = pause

    def read(self, pieces: Sequence[Piece]) -> None:
        """From the file.

        Raises:
            Cancelled: the flag was set. ModelChanged: part of the file is gone. DeviceLost.
        """
        if not pieces:
            return
        device = self._memory.device
        stage = _Direct(self._weights) if device.emulated else _Staged(self._weights, device)

        def bring(piece: Piece) -> int:
            self._look()
            started = time.perf_counter()
            stage.bring(piece)
            self._pause(time.perf_counter() - started)
            return piece.nbytes

        with ThreadPoolExecutor(1 if device.emulated else STAGERS, "upload") as threads:
            for nbytes in threads.map(bring, pieces):
                self._arrived(nbytes)
        stage.close()

    def carry(self, pieces: Sequence[Piece]) -> None:
        """From memory, where all of it lies and stays: by the card itself, what its driver refuses through the ring.

        Raises:
            Cancelled: the flag was set. ModelChanged: part of the file is gone. DeviceLost, OutOfMemory.
        """
        others: list[Piece] = []
        places = [(self._weights.address(piece.tensor) + piece.start, piece.nbytes) for piece in pieces]
        ahead = PinAhead(self._weights.pins, places)
        try:
            if self._weights.pins.nbytes or ahead.tells:
                most = max((piece.nbytes for piece in pieces if not piece.into.is_contiguous()), default=0)
                jobs = self._jobs(pieces, places, ahead, others)
                send_direct(self._memory, jobs, most, self._look, self._arrived)
            else:
                others += pieces
        finally:
            ahead.close()
        if others:
            self._through_ring(others)
        self._weights.check_lost()

    def _jobs(
        self, pieces: Sequence[Piece], places: Sequence[tuple[int, int]], ahead: PinAhead, others: list[Piece]
    ) -> Iterator[Job]:
        """What the card can read, as soon as it can; to `others` goes what it cannot."""
        for piece, place in zip(pieces, places, strict=True):
            ahead.wait(*place)
            there, apart = _told_apart(piece, self._weights.pins.parts(*place))
            others += apart
            yield from there

    def _through_ring(self, pieces: Sequence[Piece]) -> None:
        chunk, n_chunks = max(piece.nbytes for piece in pieces), min(CHUNKS, max(2, len(pieces)))
        places = [(self._weights.address(piece.tensor) + piece.start, piece.nbytes) for piece in pieces]
        pinned = Pinned(chunk * n_chunks, (self._memory.device,))
        try:
            ferry = Ferry(pinned.bytes.numpy(), chunk, CARRIERS)
        except MemoryError as error:
            pinned.close()
            raise OutOfMemory(f"{error}; close other programs") from error
        try:
            ferry.begin(np.array(places, np.uint64))
            self._send(ferry, pinned.bytes, pieces)
        finally:
            ferry.stop()
            del ferry  # whose threads may write to the ring no more
            pinned.close()

    def _look(self) -> None:
        if self._abort.is_set:
            raise Cancelled("loading was stopped")

    def _send(self, ferry: Ferry, ring: Tensor, pieces: Sequence[Piece]) -> None:
        device, memory = self._memory.device, self._memory
        spreads = (piece.nbytes for piece in pieces if not (device.emulated or piece.into.is_contiguous()))
        most = max(spreads, default=0)
        spread = memory.allocate((most,), torch.uint8, "workspace", "weights that are spread") if most else None
        try:
            with DRIVER:
                stream = None if device.emulated else torch.cuda.Stream(device.torch_device)
            on_device = nullcontext() if stream is None else torch.cuda.device(device.torch_device)
            on_stream = nullcontext() if stream is None else torch.cuda.stream(stream)
            marks: deque[torch.cuda.Event] = deque()
            with guarded(device), torch.inference_mode(), on_device, on_stream:
                for i, piece in enumerate(pieces):
                    started = time.perf_counter()
                    self._look()
                    while not ferry.wait(i, LOOK_S):
                        self._look()
                    at = i % ferry.n_chunks * ferry.chunk
                    _into(piece, ring[at : at + piece.nbytes], spread)
                    if stream is None:
                        ferry.freed(i + 1)
                    else:
                        marks.append(torch.cuda.Event())
                        marks[-1].record(stream)
                        while marks and (len(marks) >= ferry.n_chunks - 1 or marks[0].query()):
                            marks.popleft().synchronize()
                            ferry.freed(i + 1 - len(marks))
                    self._arrived(piece.nbytes)
                    self._pause(time.perf_counter() - started)
                if stream is not None:
                    stream.synchronize()
        finally:
            if spread is not None:
                memory.give_back(spread, "workspace")


def _told_apart(piece: Piece, parts: Sequence[Part]) -> tuple[list[Job], list[Piece]]:
    """What of a piece is pinned, and what is not, in whole rows of its tensor where they lie apart."""
    if not any(part.pinned for part in parts):
        return [], [piece]
    jobs: list[Job] = []
    others: list[Piece] = []
    row = 1 if piece.into.is_contiguous() else piece.into.shape[1]
    first = parts[0].address

    def within(start: int, end: int) -> Tensor:
        return piece.into.view(1, -1)[:, start:end] if row == 1 else piece.into[start // row : end // row]

    done = 0
    for pinned, group in groupby(parts, lambda part: part.pinned):
        run = list(group)
        if not pinned:
            continue
        start = -(-(run[0].address - first) // row) * row
        end = (run[-1].address + run[-1].nbytes - first) // row * row
        if start >= end:
            continue
        if start > done:
            others.append(Piece(piece.tensor, piece.start + done, within(done, start)))
        jobs.append((within(start, end), _between(run, first + start, first + end)))
        done = end
    if done < piece.nbytes:
        others.append(Piece(piece.tensor, piece.start + done, within(done, piece.nbytes)))
    return jobs, others


def _between(run: Sequence[Part], start: int, end: int) -> list[Part]:
    """Of pinned parts in a row, what lies in [start, end)."""
    cut = [(max(part.address, start), min(part.address + part.nbytes, end)) for part in run]
    return [Part(low, high - low, pinned=True) for low, high in cut if low < high]


def _into(piece: Piece, chunk: Tensor, spread: Tensor | None) -> None:
    """Enqueues what brings a chunk of pinned memory to its place."""
    if piece.into.is_contiguous() or piece.into.device.type == "cpu":
        piece.into.copy_(chunk.view(piece.into.shape), non_blocking=True)
        return
    assert spread is not None
    there = spread[: piece.nbytes]
    there.copy_(chunk, non_blocking=True)
    with DRIVER:  # code is loaded that is new to the card
        piece.into.copy_(there.view(piece.into.shape))


class _Direct:
    """Reads into the tensors of an emulated device."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights

    def bring(self, piece: Piece) -> None:
        into = piece.into.numpy()
        room = into if into.flags.c_contiguous else np.empty(into.shape, np.uint8)
        self._weights.read_into(piece.tensor, piece.start, room.reshape(-1))
        if room is not into:
            into[:] = room

    def close(self) -> None:
        """Nothing is kept."""


class _Staged:
    """Reads into pinned buffers, one a thread, and copies from there on a stream of the thread's own."""

    def __init__(self, weights: Weights, device: GpuDevice) -> None:
        self._weights = weights
        self._device = device
        self._own = threading.local()
        self._spreads = False

    def bring(self, piece: Piece) -> None:
        with guarded(self._device), torch.cuda.device(self._device.torch_device):
            if not hasattr(self._own, "buffer"):
                with DRIVER:
                    self._own.buffer = torch.empty(STAGED_BYTES, dtype=torch.uint8, pin_memory=True)
                    self._own.stream = torch.cuda.Stream(self._device.torch_device)
            buffer = self._own.buffer[: piece.nbytes]
            self._weights.read_into(piece.tensor, piece.start, buffer.numpy())
            with torch.cuda.stream(self._own.stream):
                self._spreads = self._spreads or not piece.into.is_contiguous()
                with DRIVER:  # room on the device is taken, and code is loaded that is new to it
                    arrived = buffer if piece.into.is_contiguous() else buffer.to(piece.into.device, non_blocking=True)
                    piece.into.copy_(arrived.view(piece.into.shape), non_blocking=True)
            self._own.stream.synchronize()

    def close(self) -> None:
        """Gives back what blocks passed through on the device, to be spread."""
        if self._spreads:
            with guarded(self._device), DRIVER:
                torch.cuda.empty_cache()
