"""Weights that a card reads where they lie in the machine's memory: its driver was told of them before (`pins`).

No core copies anything. The bus is all that it takes, a fraction of what the memory gives, so that it does not rest for steps.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress

import torch
from torch import Tensor

from engine.runtime.driver import DRIVER
from engine.runtime.gpu import GpuDevice, GpuMemory, guarded
from engine.runtime.pins import Part

IN_FLIGHT = 64 << 20
"""Bytes on their way at once: a millisecond on a fast bus, after which a cancel is noticed."""
PORTABLE = 1
"""cudaHostRegisterPortable: for all cards."""
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
                return int(self._runtime.cudaHostRegister(address, nbytes, PORTABLE)) == 0
        except RuntimeError:
            return False

    def unregister(self, address: int) -> None:
        """See `HostDriver`."""
        with suppress(RuntimeError), torch.cuda.device(self._device):
            self._runtime.cudaHostUnregister(address)


def send_direct(memory: GpuMemory, jobs: Sequence[Job], look: Callable[[], None], arrived: Callable[[int], None]) -> None:
    """Brings all jobs. look: raises what ends it, asked before each; arrived(n): n bytes more are there.

    Raises:
        DeviceLost, OutOfDeviceMemory. What `look` raises: nothing is on its way any more.
    """
    device = memory.device
    most = max((into.numel() for into, _ in jobs if not into.is_contiguous()), default=0)
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
    jobs: Sequence[Job],
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
