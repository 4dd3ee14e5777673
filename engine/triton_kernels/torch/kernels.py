"""All kernels of a lane in torch, joined from their parts."""

from __future__ import annotations

from engine.triton_kernels.torch.attention_forms import AttentionForms
from engine.triton_kernels.torch.delta_forms import DeltaForms
from engine.triton_kernels.torch.linear_forms import LinearForms


class TorchKernels(LinearForms, AttentionForms, DeltaForms):
    """Kernels on any device that torch has: the reference of the Triton kernels, and what emulated GPUs compute with."""
