"""Memory of the machine that real GPUs copy to and from on their own."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.errors import OutOfMemory
from engine.runtime.gpu import GpuDevice, guarded
from kernels_pyx.arena import Arena

FOR_ALL = 3
"""cudaHostRegisterPortable | cudaHostRegisterMapped: every device reads and writes it, kernels too."""


class Pinned:
    """An arena as bytes of torch, pinned where a device is real. Views keep its memory; `close` only lets the driver go."""

    def __init__(self, arena: Arena, devices: tuple[GpuDevice, ...]) -> None:
        """Raises: OutOfMemory: the driver refuses. DeviceLost."""
        self.bytes: Tensor = torch.from_numpy(np.frombuffer(memoryview(arena), np.uint8))
        self._address = 0
        real = next((device for device in devices if not device.emulated), None)
        if real is not None:
            with guarded(real), torch.cuda.device(real.torch_device):
                refused = int(torch.cuda.cudart().cudaHostRegister(arena.address, arena.nbytes, FOR_ALL))
            if refused:
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
