"""Memory of the machine that real GPUs copy to and from on their own."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

from engine.errors import OutOfMemory
from engine.runtime.gpu import GpuDevice, guarded
from kernels_pyx.arena import Arena

FOR_ALL = 3
"""cudaHostRegisterPortable | cudaHostRegisterMapped: every device reads and writes it, kernels too."""


ALREADY = 712
"""cudaErrorHostMemoryAlreadyRegistered: of memory that lay at these addresses before and went without a word."""


class Pinned:
    """An arena as bytes of torch, pinned where a device is real. Views keep its memory; `close` only lets the driver go.

    What is dropped without being closed lets the driver go too: memory that is unmapped while the driver holds it makes every
    later use of its addresses fail.
    """

    def __init__(self, arena: Arena, devices: tuple[GpuDevice, ...]) -> None:
        """Raises: OutOfMemory: the driver refuses. DeviceLost."""
        self._address = 0
        self.bytes: Tensor = torch.from_numpy(np.frombuffer(memoryview(arena), np.uint8))
        real = next((device for device in devices if not device.emulated), None)
        if real is None:
            return
        with guarded(real), torch.cuda.device(real.torch_device):
            driver = torch.cuda.cudart()
            refused = int(driver.cudaHostRegister(arena.address, arena.nbytes, FOR_ALL))
            if refused == ALREADY:
                driver.cudaHostUnregister(arena.address)
                refused = int(driver.cudaHostRegister(arena.address, arena.nbytes, FOR_ALL))
        if refused:
            _forget_error(real)
            raise OutOfMemory(
                f"{arena.nbytes:,} bytes of memory could not be pinned for {real} (error {refused}); close other programs"
            )
        self._address = arena.address

    def close(self) -> None:
        """Idempotent."""
        if self._address:
            torch.cuda.cudart().cudaHostUnregister(self._address)
            self._address = 0
        self.bytes = torch.empty(0, dtype=torch.uint8)

    def __del__(self) -> None:
        if self._address:
            with suppress(Exception):  # at the end of the process torch may be gone, and the driver with it
                torch.cuda.cudart().cudaHostUnregister(self._address)


def _forget_error(device: GpuDevice) -> None:
    """The driver's runtime keeps the last error until somebody asks; a kernel of torch's does and raises it."""
    with suppress(RuntimeError):
        torch.zeros(1, device=device.torch_device)
