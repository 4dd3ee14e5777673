"""Steps of a gated DeltaNet, as kernels of GPU lanes get them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.arch.spec import DeltaShape
from engine.triton_kernels.tensors import DeltaState, NormWeight, StepInputs
from tests.helpers.gpu_steps import Steps, floats

SHAPES = [
    DeltaShape(2, 4, 16, 4, tiled=False, joined=True, paired=True),
    DeltaShape(2, 6, 16, 4, tiled=True),
    DeltaShape(3, 3, 32, 2, tiled=False, paired=True),
    DeltaShape(1, 2, 48, 3, tiled=False, joined=True),
]
N_SLOTS = 8


class Forms(Protocol):
    """What computes it."""

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
        """See `engine.triton_kernels.kernels.Kernels`."""


@dataclass
class DeltaCase:
    """Inputs, weights and states of one step."""

    shape: DeltaShape
    step: StepInputs
    x: Tensor
    z: Tensor
    beta: Tensor
    alpha: Tensor
    conv: Tensor
    dt: Tensor
    a: Tensor
    norm: NormWeight
    state: DeltaState

    @classmethod
    def make(cls, shape: DeltaShape, rows: Sequence[tuple[int, int]], states: object, device: str = "cpu") -> DeltaCase:
        """Random values. rows: (sequence, position) each; states: as in a step."""
        n, n_v, dim = len(rows), shape.n_v_heads, shape.dim
        taken = Steps(tuple(1 + max(p for _, p in rows) for _ in range(1 + max(seq for seq, _ in rows))))
        step = taken.rows(rows, states=states)
        x = floats(1, n, shape.n_channels + (shape.n_inner if shape.joined else 0))
        beta = floats(3, n, n_v * (2 if shape.paired else 1))
        inputs = floats(5, N_SLOTS, shape.n_taps - 1, shape.n_channels)
        state = DeltaState(inputs, 0.3 * floats(6, N_SLOTS, n_v, dim, dim))
        norm = NormWeight(1 + 0.1 * floats(7, dim), 1e-6)
        a = -floats(10, n_v).abs()
        a[0] = 0.5  # what a broken file may hold: such matrices just do not fade
        return cls(
            shape,
            step,
            x,
            x if shape.joined else floats(2, n, shape.n_inner),
            beta,
            beta if shape.paired else floats(4, n, n_v),
            floats(8, shape.n_taps, shape.n_channels),
            floats(9, n_v),
            a,
            norm,
            state,
        )

    def run(self, kernels: Forms, *, rows: bool = False) -> Tensor:
        """What `kernels` make of it, [n_rows, n_inner]; states change."""
        out = torch.full((len(self.x), self.shape.n_inner), 77.0, device=self.x.device)
        gates = (self.beta, self.alpha, self.conv, self.dt, self.a, self.norm)
        kernels.delta(self.step, self.x, self.z, *gates, self.shape, self.state, out, rows=rows)
        return out
