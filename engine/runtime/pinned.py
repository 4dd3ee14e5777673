"""Memory of the machine that real GPUs copy to and from on their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np
import torch
from torch import Tensor

from engine.errors import OutOfMemory
from engine.runtime.driver import DRIVER
from engine.runtime.gpu import GpuDevice, guarded
from engine.runtime.kv_cache import allocate
from kernels_pyx.arena import Arena

PAGE = 4096
"""What an arena begins at a multiple of."""


class Pinned:
    """nbytes of zeroed memory that programs of the CPU and kernels of all devices read and write, as an arena and as bytes.

    Where a device is real its driver gives the memory: it need not be told of memory of ours, nor be told again on every way on
    which that may go, without which it refuses the same addresses later. Views of `bytes` keep the memory, what is seen through
    `arena` does not.
    """

    def __init__(self, nbytes: int, devices: tuple[GpuDevice, ...]) -> None:
        """Raises: OutOfMemory: the driver refuses. DeviceLost."""
        real = next((device for device in devices if not device.emulated), None)
        if real is None:
            self.arena = allocate(nbytes, "the memory beside a GPU", "choose a smaller prefill chunk")
            self.bytes: Tensor = bytes_of(self.arena)
            return
        with guarded(real), torch.cuda.device(real.torch_device), DRIVER:
            try:
                room = torch.zeros(nbytes, dtype=torch.uint8, pin_memory=True)
                if room.data_ptr() % PAGE:  # a piece out of the middle of a block that the allocator keeps
                    room = torch.zeros(nbytes + PAGE, dtype=torch.uint8, pin_memory=True)
            except RuntimeError as error:
                if "memory" not in str(error):
                    raise
                raise OutOfMemory(f"{nbytes:,} bytes of memory could not be pinned for {real}; close other programs") from error
        first = -room.data_ptr() % PAGE
        self.bytes = room[first : first + nbytes]
        self.arena = Arena(nbytes, address=self.bytes.data_ptr())

    def close(self) -> None:
        """Lets go of the memory, whose last view gives it back. Idempotent."""
        if self.bytes.is_pinned():
            self.bytes = torch.empty(0, dtype=torch.uint8)
            _LEFT.give_back()
        self.bytes = torch.empty(0, dtype=torch.uint8)


class _Left:
    """What torch keeps of pinned memory for the next one, which may be as large as all that was. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits = 0
        self._any = False

    def give_back(self) -> None:
        """To the system, at once or when nobody wants it to wait any more."""
        with self._lock:
            self._any = True
            if self._waits:
                return
            self._any = False
        with suppress(AttributeError), DRIVER:
            torch._C._host_emptyCache()

    @contextmanager
    def waits(self) -> Iterator[None]:
        with self._lock:
            self._waits += 1
        try:
            yield
        finally:
            with self._lock:
                self._waits -= 1
                due = self._any and not self._waits
            if due:
                self.give_back()


_LEFT = _Left()


@contextmanager
def given_back_at_once() -> Iterator[None]:
    """Pinned memory that is let go of while it is entered goes back at its end: each time the driver waits for idle cards."""
    with _LEFT.waits():
        yield


def bytes_of(arena: Arena) -> Tensor:
    """An arena as bytes of torch."""
    return torch.from_numpy(np.frombuffer(memoryview(arena), np.uint8))
