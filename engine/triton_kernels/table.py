"""Which kernels a device gets. Imports torch: only what runs a GPU lane imports this."""

from __future__ import annotations

import torch

from engine.triton_kernels.kernels import Allocate, Kernels
from engine.triton_kernels.torch.kernels import TorchKernels


def kernels_for(device: torch.device, allocate: Allocate) -> Kernels:
    """The kernels of a lane on this device: in Triton on GPUs, else in torch.

    `allocate` gives them the workspace that they keep.
    """
    if device.type != "cuda":
        return TorchKernels()
    from engine.triton_kernels.joined import TritonKernels  # which emulated GPUs do not need

    asm = torch.version.hip is None
    return TritonKernels(allocate, asm=asm, early=asm and torch.cuda.get_device_capability(device) >= (9, 0))
