"""Experts that lie in the machine's memory, brought to a GPU layer by layer while it computes a long chunk of a prompt.

Their weights pass through a ring of two places on the device: while one layer's experts are multiplied, the next layer's arrive.
Threads without the interpreter's lock (`kernels_pyx.ferry`) copy them to pinned chunks, for a bus reads pages of a mapped file
at an eighth of its rate; one thread sends the chunks on, on a stream of its own. Events order it all on the device:

    the compute stream waits for a layer's last copy before its experts, and says behind them that the place is free;
    the copy stream waits for that before the next but one layer.

An event must have been recorded before a stream is told to wait for it: until then the other side's thread waits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial

import numpy as np
import torch
from torch import Tensor

from engine.arch.units import UnitId
from engine.errors import EngineError, OutOfDeviceMemory, OutOfMemory
from engine.placement import streaming
from engine.placement.streaming import RING_LAYERS, aligned, ring_bytes
from engine.program.lane_ops import LaneOp
from engine.runtime.gpu import GpuMemory, guarded
from engine.runtime.gpu_bench import Run
from engine.runtime.gpu_stream_marks import Marks, StreamTimes
from engine.runtime.gpu_weights import GpuWeights
from engine.runtime.pinned import Pinned
from engine.runtime.stream_passage import LOOK_S, TURNS, Passage
from engine.runtime.weights import Weights
from kernels_pyx.executor import AbortFlag
from kernels_pyx.ferry import Ferry

log = logging.getLogger("engine")

CARRIERS = 12
"""Threads that copy to pinned chunks at most: together twice what a PCIe 5.0 x16 takes, one alone a fifth of it."""
SPARE_BYTES = 256 << 20
"""Of a GPU, that must be free behind the ring: kernels take what they need with the first steps."""


class ExpertStream:
    """The ring of one device. layers: the tensors of each layer whose experts pass through it. Used by one thread."""

    def __init__(
        self,
        memory: GpuMemory,
        weights: Weights,
        into: GpuWeights,
        layers: Mapping[int, Sequence[str]],
        abort: AbortFlag,
        n_threads: int,
        beside: ExpertStream | None = None,
    ) -> None:
        """Takes the room of the ring and of the pinned chunks, and tells `into` where each tensor will lie.

        beside: the ring of another placement, whose memory is shared where it is as large: only one of them is used in a step.

        Raises:
            OutOfDeviceMemory, OutOfMemory, DeviceLost.
        """
        self._device = memory.device
        self._abort = abort
        tensors = {layer: [weights.tensor(name) for name in layers[layer]] for layer in sorted(layers)}
        self._positions = {layer: position for position, layer in enumerate(tensors)}
        total = ring_bytes([one.nbytes for one in found] for found in tensors.values())
        there = None if beside is None else beside._ring
        if there is not None and there.numel() != total:
            there = None
        self.lent = there is not None
        """Whether the ring is also that of a placement that still runs."""
        if there is None and not self._device.emulated and memory.free < total + SPARE_BYTES:
            what = "the ring through which experts pass, beside what kernels still take,"
            raise OutOfDeviceMemory(what, str(self._device), total + SPARE_BYTES, memory.free)
        what = "the ring through which experts pass"
        self._ring: Tensor = memory.allocate((total,), torch.uint8, "workspace", what) if there is None else there
        if there is not None:
            memory.share(there, "workspace")
        self._rooms: list[list[tuple[int, Tensor]]] = []
        for position, found in enumerate(tensors.values()):
            at = position % RING_LAYERS * (total // RING_LAYERS)
            self._rooms.append([])
            for tensor in found:
                room = self._ring[at : at + tensor.nbytes]
                into.lend(tensor.name, room)
                at += aligned(tensor.nbytes)
                self._rooms[-1].append((weights.address(tensor), room))
        self.nbytes = sum(one.nbytes for found in tensors.values() for one in found)
        """What crosses in a step."""
        self._passage: Passage | None = None
        self._sending: Future[None] | None = None
        self.times: StreamTimes | None = None
        self._marks = None if self._device.emulated else Marks(len(self._rooms), memory)
        self._n_threads = max(1, min(n_threads, CARRIERS))
        self.pinned_bytes = streaming.CHUNKS * streaming.CHUNK_BYTES
        self._chunks: tuple[int, int] = (streaming.CHUNK_BYTES, streaming.CHUNKS) if beside is None else beside._chunks
        self._rate: float = 0.0 if beside is None else beside._rate
        """GB/s at which weights were found to come, 0: not measured yet."""
        self._is_tuned = self._rate > 0
        self._pinned = Pinned(self.pinned_bytes, (self._device,))
        try:
            self._use(*self._chunks)
        except BaseException:
            self._pinned.close()
            raise
        self._sender = ThreadPoolExecutor(1, "experts")

    def _use(self, chunk_bytes: int, n_chunks: int) -> None:
        """Cuts what passes into chunks, from now on. Only while nothing is on its way. Raises: OutOfMemory."""
        self._chunks = chunk_bytes, n_chunks
        self._ferry: Ferry | None = None
        loads: list[tuple[int, int]] = []
        self._parts: list[list[tuple[int, Tensor]]] = []
        for rooms in self._rooms:
            self._parts.append([])
            for address, room in rooms:
                for start in range(0, room.numel(), chunk_bytes):
                    part = room[start : start + chunk_bytes]
                    self._parts[-1].append((len(loads), part))
                    loads.append((address + start, part.numel()))
        self._loads = np.array(loads, np.uint64)
        try:
            self._ferry = Ferry(self._pinned.bytes[: chunk_bytes * n_chunks].numpy(), chunk_bytes, self._n_threads)
        except MemoryError as error:
            raise OutOfMemory(f"{error}; close other programs") from error

    def hooks(self, ops: Sequence[LaneOp]) -> tuple[dict[int, Run], dict[int, Run]]:
        """(what comes before op i, what comes behind it) in a lane that multiplies with these experts."""
        before: dict[int, Run] = {0: self.start}
        behind: dict[int, Run] = {}
        for layer, position in self._positions.items():
            at = [i for i, op in enumerate(ops) if op.unit == UnitId("experts", layer)]
            if at:
                before[at[0]] = _after(before.get(at[0]), partial(self.arrive, position))
                behind[at[-1]] = partial(self.leave, position)
        return before, behind

    def start(self) -> None:
        """The first layers set off, behind whatever still reads the ring."""
        self.rest()
        assert self._ferry is not None
        if self._marks is not None:
            self._marks.free[0].record()
        self._ferry.begin(self._loads)
        TURNS.begin()
        self._passage = Passage()
        self._sending = self._sender.submit(self._send, self._ferry, self._passage)

    def arrive(self, position: int) -> None:
        """What is enqueued from now on waits until a layer is there.

        Raises:
            Cancelled: the abort flag was set. DeviceLost.
        """
        assert self._passage is not None
        self._passage.wait_sent(position + 1, self._abort)
        if self._marks is not None:
            self._marks.wait(position)

    def leave(self, position: int) -> None:
        """Behind what multiplies with a layer: its place is free for the next but one."""
        assert self._passage is not None
        if self._marks is not None:
            self._marks.free[position + 1].record()
        self._passage.note(left=position + 1)

    def rest(self) -> None:
        """A step is over, or given up: nothing reads the file's memory any more, nor writes the ring."""
        if self._passage is None or self._ferry is None or self._sending is None:
            return
        whole = self._passage.is_whole(len(self._parts))
        self._passage.stop()
        self._ferry.stop()
        self._sending.exception()
        if self._marks is not None:
            with suppress(EngineError), guarded(self._device):
                self._marks.stream.synchronize()
                if whole and self._marks.are_over:
                    self.times = self._marks.times(self.nbytes, self._first_bytes)
        self._passage = self._sending = None
        TURNS.end()

    def tune(self) -> float:
        """Finds the chunks with which weights come fastest, unless another placement found them; GB/s.

        Raises:
            Cancelled, DeviceLost, OutOfMemory.
        """
        if self._is_tuned:
            return self._rate
        self._rate = self.measure()  # the first time pages of the file are looked up
        if self._marks is None:
            return self._rate
        rates: dict[tuple[int, int], float] = {}
        for ring in streaming.RINGS:
            self._use(*ring)
            rates[ring] = max(self.measure() for _ in range(2))
        best = max(rates, key=lambda ring: rates[ring])
        self._use(*best)
        log.info("experts come to %s at (chunk, chunks: GB/s) %s", self._device, rates)
        self._rate = rates[best]
        return self._rate

    def measure(self) -> float:
        """GB/s at which weights come to the device: the first layers are brought once.

        Raises:
            Cancelled, DeviceLost.
        """
        started = time.perf_counter()
        with guarded(self._device), nullcontext() if self._marks is None else torch.cuda.device(self._device.torch_device):
            try:
                self.start()
                last = min(RING_LAYERS, len(self._parts)) - 1
                self.arrive(last)
                if self._marks is not None:
                    self._marks.ready[last].synchronize()
                return self._first_bytes / (time.perf_counter() - started) / 1e9
            finally:
                self.rest()

    @property
    def _first_bytes(self) -> int:
        return sum(part.numel() for parts in self._parts[:RING_LAYERS] for _, part in parts)

    def _send(self, ferry: Ferry, passage: Passage) -> None:
        """Sends all layers on, each as soon as its place is free."""
        try:
            with nullcontext() if self._marks is None else self._marks.sending():
                for position, parts in enumerate(self._parts):
                    if not passage.wait_left(position + 1 - RING_LAYERS):
                        return
                    if self._marks is not None:
                        self._marks.begin(position)
                    for i, into in parts:
                        if not self._send_part(ferry, passage, i, into):
                            return
                    if self._marks is not None:
                        self._marks.ready[position].record()
                    passage.note(sent=position + 1)
        except BaseException as error:
            passage.note(error=error)

    def _send_part(self, ferry: Ferry, passage: Passage, i: int, into: Tensor) -> bool:
        """False: it is over."""
        while not ferry.wait(i, LOOK_S):
            if passage.stopped:
                return False
        at = i % ferry.n_chunks * ferry.chunk
        chunk = self._pinned.bytes[at : at + into.numel()]
        if self._marks is None:
            into.copy_(chunk)
            ferry.freed(i + 1)
        else:
            into.copy_(chunk, non_blocking=True)
            ferry.freed(self._marks.read(i, ferry.n_chunks))
        return True

    def settle(self) -> None:
        """The other placement is no more."""
        self.lent = False

    def close(self) -> None:
        """Ends the threads and lets go of the pinned memory. Idempotent."""
        self.rest()
        self._sender.shutdown(wait=True)
        self._ferry = None
        self._pinned.close()
        self._parts.clear()
        self._rooms.clear()


def _after(earlier: Run | None, run: Run) -> Run:
    """Both, one after the other."""
    if earlier is None:
        return run
    first: Callable[[], None] = earlier

    def both() -> None:
        first()
        run()

    return both
