"""Gated DeltaNet of a lane in Triton: step by step in decode, in chunks of rows else."""

from __future__ import annotations

from torch import Tensor

from engine.arch.spec import DeltaShape
from engine.triton_kernels.delta import StepConfig, delta_step
from engine.triton_kernels.delta_chunks import ChunkConfig, delta_chunks
from engine.triton_kernels.tensors import DeltaState, NormWeight, StepInputs
from engine.triton_kernels.workspace import Workspace


class DeltaKernels:
    """See `engine.triton_kernels.kernels.Kernels`."""

    _workspace: Workspace
    _early: bool = False

    def delta(
        self,
        step: StepInputs,
        x: Tensor,
        z: Tensor,
        beta: Tensor,
        alpha: Tensor,
        conv: Tensor,
        dt: Tensor,
        a: Tensor,
        norm: NormWeight,
        shape: DeltaShape,
        state: DeltaState,
        out: Tensor,
        *,
        rows: bool,
    ) -> None:
        """See LaneDelta."""
        if rows:
            delta_step(
                self._workspace, StepConfig(), step, x, z, beta, alpha, conv, dt, a, norm, shape, state, out, early=self._early
            )
        else:
            delta_chunks(self._workspace, ChunkConfig(), step, x, z, beta, alpha, conv, dt, a, norm, shape, state, out)
