"""What `gpu_attention` measures of gated DeltaNet."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.arch.spec import DeltaShape
from engine.triton_kernels.delta import StepConfig, delta_step
from engine.triton_kernels.delta_chunks import ChunkConfig, delta_chunks
from engine.triton_kernels.tensors import DeltaState, NormWeight
from engine.triton_kernels.torch.delta_forms import DeltaForms
from tests.bench.gpu_attention_cases import DEVICE, ROOM, ROTATED, Case, allocate, step_of

CHUNKS = [ChunkConfig(*sizes) for sizes in ((32, 4, 1), (32, 4, 2), (64, 4, 1), (64, 8, 1), (64, 8, 2), (16, 4, 2), (128, 8, 1))]


STEPS = [StepConfig(*sizes) for sizes in ((32, 4), (32, 2), (32, 8), (64, 4), (64, 8), (16, 4), (16, 2), (128, 4))]


def delta(n_rows: int, *, rows: bool) -> Case:
    """One layer of Qwen3.5-35B-A3B."""
    shape, n_seqs = DeltaShape(16, 32, 128, 4, tiled=True), n_rows if rows else 1
    copies = max(1, min(16, ROTATED // (n_seqs * 4 * shape.state_floats)))
    uses = [[2 * i, 2 * i + 1, -1, 0] for i in range(n_seqs)]
    step = step_of([(i, 7) if rows else (0, 7 + i) for i in range(n_rows)], n_seqs, 128, uses)
    states = [
        DeltaState(
            torch.randn(2 * n_seqs, 3, shape.n_channels, device=DEVICE),
            0.1 * torch.randn(2 * n_seqs, 32, 128, 128, device=DEVICE),
        )
        for _ in range(copies)
    ]
    x, z = torch.randn(n_rows, shape.n_channels, device=DEVICE), torch.randn(n_rows, shape.n_inner, device=DEVICE)
    beta, alpha = (torch.randn(n_rows, 32, device=DEVICE) for _ in range(2))
    weights = torch.randn(4, shape.n_channels, device=DEVICE), torch.randn(32, device=DEVICE), -torch.rand(32, device=DEVICE)
    norm, out = NormWeight(torch.ones(128, device=DEVICE), 1e-6), allocate((n_rows, shape.n_inner), "float32")
    given = (step, x, z, beta, alpha, *weights, norm, shape)

    def run(i: int, config: Any) -> None:
        if rows:
            delta_step(ROOM, config, *given, states[i], out)
        else:
            delta_chunks(ROOM, config, *given, states[i], out)

    def wanted() -> Tensor:
        found = torch.empty_like(out)
        DeltaForms().delta(*given, states[0], found, rows=rows)
        return found

    nbytes = 2.0 * n_seqs * 4 * shape.state_floats + 4 * (x.numel() + z.numel() + out.numel())
    flops = 0.0 if rows else 2.0 * n_rows * 32 * (3 * 128 * 128 + 5 * 64 * 128)
    name = f"delta {'step' if rows else 'chunk'}, {n_rows} rows"
    return Case(name, "f32", STEPS if rows else CHUNKS, copies, run, wanted, out, nbytes, flops)
