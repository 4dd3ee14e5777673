"""Weights that a card reads where they lie in the machine's memory: its driver was told of them (`pins`), before or on the way.

No core copies anything. The bus is all that it takes, a fraction of what the memory gives, so that it does not rest for steps.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress

import torch
from torch import Tensor

from engine.runtime.driver import DRIVER
from engine.runtime.gpu import GpuDevice, GpuMemory, guarded
from engine.runtime.pins import Part, Pins

IN_FLIGHT = 64 << 20
"""Bytes on their way at once: a millisecond on a fast bus, after which a cancel is noticed."""
WINDOW = 16 << 20
"""Of what the driver is told of at a time: half a millisecond to a whole one, for which a step may have to wait."""
PAGE = 4096
PORTABLE, READ_ONLY = 1, 8
"""cudaHostRegisterPortable: for all cards; cudaHostRegisterReadOnly: memory that nobody may write, as mapped files."""
Job = tuple[Tensor, Sequence[Part]]
"""Where bytes go, uint8 [n, m], and where they lie, in order; all of them pinned."""


class CudaHost:
    """The driver of the GPUs that torch uses, as `pins.HostDriver`."""

    def __init__(self, device: GpuDevice) -> None:
        self._device = device.torch_device
        self._runtime = torch.cuda.cudart()

    def register(self, address: int, nbytes: int) -> bool:
        """See `HostDriver`. An error stays with the thread that asked, which should launch nothing."""
        try:
            with torch.cuda.device(self._device):
                return int(self._runtime.cudaHostRegister(address, nbytes, PORTABLE | READ_ONLY)) == 0
        except RuntimeError:
            return False

    def unregister(self, address: int) -> None:
        """See `HostDriver`."""
        with suppress(RuntimeError), torch.cuda.device(self._device):
            self._runtime.cudaHostUnregister(address)


class PinAhead:
    """Tells the driver of ranges of memory, (address, bytes), as far as it was not told of them, ahead of who copies from there.

    A thread of its own does so, a window at a time, in the order of addresses.
    """

    def __init__(self, pins: Pins, ranges: Iterable[tuple[int, int]]) -> None:
        self._pins = pins
        self._windows = list(_windows(pins, ranges)) if pins.has_room(1) else []
        self._ends = [address + nbytes for address, nbytes in self._windows]
        self._thread = ThreadPoolExecutor(1, "pins")
        self._told = [self._thread.submit(self._tell, *one) for one in self._windows]

    def _tell(self, address: int, nbytes: int) -> None:
        with DRIVER:  # who steps comes first
            self._pins.pin(address, nbytes)

    @property
    def tells(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self._windows)

    def wait(self, address: int, nbytes: int) -> None:
        """Until the driver was told of all of a range, or has refused."""
        for i in range(bisect_right(self._ends, address), len(self._windows)):
            if self._windows[i][0] >= address + nbytes:
                return
            self._told[i].result()

    def close(self) -> None:
        """Tells no more. Idempotent."""
        self._thread.shutdown(cancel_futures=True)


def _windows(pins: Pins, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Whole pages that are not pinned yet."""
    merged: list[list[int]] = []
    for address, nbytes in sorted(ranges):
        first, end = address // PAGE * PAGE, -(-(address + nbytes) // PAGE) * PAGE
        if merged and first <= merged[-1][1]:
            merged[-1][1] = max(end, merged[-1][1])
        else:
            merged.append([first, end])
    for first, end in merged:
        for part in pins.parts(first, end - first):
            for at in range(0, 0 if part.pinned else part.nbytes, WINDOW):
                yield part.address + at, min(WINDOW, part.nbytes - at)


def send_direct(
    memory: GpuMemory, jobs: Iterable[Job], most: int, look: Callable[[], None], arrived: Callable[[int], None]
) -> None:
    """Brings all jobs. look: raises what ends it, asked before each; arrived(n): n bytes more are there.

    most: bytes of the largest job whose rows lie apart.

    Raises:
        DeviceLost, OutOfDeviceMemory. What `look` raises: nothing is on its way any more.
    """
    device = memory.device
    spread = memory.allocate((most,), torch.uint8, "workspace", "weights that are spread") if most else None
    try:
        with DRIVER:
            stream = None if device.emulated else torch.cuda.Stream(device.torch_device)
        on_device = nullcontext() if stream is None else torch.cuda.device(device.torch_device)
        on_stream = nullcontext() if stream is None else torch.cuda.stream(stream)
        with guarded(device), torch.inference_mode(), on_device, on_stream:
            try:
                _send(stream, jobs, spread, look, arrived)
            finally:
                if stream is not None:
                    stream.synchronize()
    finally:
        if spread is not None:
            memory.give_back(spread, "workspace")


def _send(
    stream: torch.cuda.Stream | None,
    jobs: Iterable[Job],
    spread: Tensor | None,
    look: Callable[[], None],
    arrived: Callable[[int], None],
) -> None:
    marks: deque[tuple[torch.cuda.Event, int]] = deque()
    on_way = 0
    for into, parts in jobs:
        look()
        _enqueue(into, parts, spread)
        if stream is None:
            arrived(into.numel())
            continue
        marks.append((torch.cuda.Event(), into.numel()))
        marks[-1][0].record(stream)
        on_way += into.numel()
        while on_way > IN_FLIGHT:
            on_way -= _passed(marks, arrived)
    while marks:
        _passed(marks, arrived)


def _passed(marks: deque[tuple[torch.cuda.Event, int]], arrived: Callable[[int], None]) -> int:
    """Waits for the first that is on its way; its bytes."""
    mark, nbytes = marks.popleft()
    mark.synchronize()
    arrived(nbytes)
    return nbytes


def _enqueue(into: Tensor, parts: Sequence[Part], spread: Tensor | None) -> None:
    there = into if into.is_contiguous() or spread is None else spread[: into.numel()]
    flat, at = there.view(-1), 0
    for address, nbytes, _ in parts:
        flat[at : at + nbytes].copy_(host_bytes(address, nbytes), non_blocking=True)
        at += nbytes
    if there is not into:
        with DRIVER:  # code is loaded that is new to the card
            into.copy_(there.view(into.shape))


def host_bytes(address: int, nbytes: int) -> Tensor:
    """The machine's memory at an address, which somebody else keeps."""
    return torch.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), dtype=torch.uint8)
