"""All kernels of a lane in Triton, joined from their parts. Imports Triton: only what has a GPU imports this."""

from __future__ import annotations

from engine.triton_kernels.attention_kernels import AttentionKernels
from engine.triton_kernels.delta_kernels import DeltaKernels
from engine.triton_kernels.linear_kernels import LinearKernels


class TritonKernels(LinearKernels, AttentionKernels, DeltaKernels):
    """Kernels of one device, see `LinearKernels` for what it is made of."""
