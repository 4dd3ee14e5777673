"""Which kernels a device gets. Imports torch: only what runs a GPU lane imports this."""

from __future__ import annotations

import torch

from engine.triton_kernels.kernels import Allocate
from engine.triton_kernels.torch.kernels import TorchKernels


def kernels_for(device: torch.device, allocate: Allocate) -> TorchKernels:
    """The kernels of a lane on this device; `allocate` gives them the workspace that they keep."""
    return TorchKernels()
