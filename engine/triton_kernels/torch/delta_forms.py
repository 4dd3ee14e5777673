"""Gated DeltaNet in torch, in f32 and token by token: `engine.graph.reference_delta` on any device."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from engine.arch.spec import DeltaShape
from engine.triton_kernels.tensors import DeltaState, NormWeight, StepInputs


class DeltaForms:
    """A method of `engine.triton_kernels.kernels.Kernels`. Sequences are gone through one by one, which waits for the device."""

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
        assert step.states is not None
        seqs, result = step.seq_of_row[: len(x)], out.unflatten(1, (shape.n_v_heads, shape.dim))
        for seq in seqs.unique().tolist():
            chosen = (seqs == seq).nonzero().squeeze(1)
            read, write, mark, n_marked = step.states[seq].tolist()
            begins = int(step.positions[chosen[0]]) == 0
            past, matrices = (
                (torch.zeros_like(state.inputs[0]), torch.zeros_like(state.matrices[0]))
                if begins
                else (state.inputs[read], state.matrices[read])
            )
            u, gate, rate, fade = _split(shape, x[chosen], z[chosen], beta[chosen], alpha[chosen])
            seen = torch.cat([past, u])
            y = functional.silu(sum(seen[j : j + len(u)] * taps for j, taps in enumerate(conv)))
            decay = (a.clamp(max=0) * functional.softplus(fade + dt)).exp()
            cuts = sorted({0, len(u), n_marked if mark >= 0 else 0})
            for first, end in pairwise(cuts):
                part = slice(first, end)
                o, matrices = _rule(shape, y[part], decay[part], rate.sigmoid()[part], matrices, norm.eps)
                normed = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + norm.eps) * norm.weight
                result[chosen[part]] = normed * functional.silu(gate[part])
                for slot in ([write] if end == len(u) else []) + ([mark] if mark >= 0 and end == n_marked else []):
                    state.inputs[slot], state.matrices[slot] = seen[end : end + len(past)], matrices


def _split(shape: DeltaShape, x: Tensor, z: Tensor, beta: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Channels [n, n_channels], gates [n, n_v, dim], betas and alphas [n, n_v], whatever the order of the projections' rows."""
    n_k, dim, each = shape.n_k_heads, shape.dim, shape.n_v_heads // shape.n_k_heads

    def by_head(values: Tensor) -> Tensor:
        """[n, n_k, each * width] of key heads to [n, n_v * width]."""
        heads = values.unflatten(2, (each, -1))
        ordered: Tensor = heads.transpose(1, 2) if shape.tiled else heads
        return ordered.flatten(1)

    if shape.joined:
        q, k, v, z = x.unflatten(1, (n_k, -1)).split([dim, dim, each * dim, each * dim], 2)
        x, z = torch.cat([q.flatten(1), k.flatten(1), by_head(v)], 1), by_head(z)
    if shape.paired:
        beta, alpha = (by_head(half) for half in beta.unflatten(1, (n_k, 2 * each)).split(each, 2))
    return x, z.unflatten(1, (shape.n_v_heads, dim)), beta, alpha


def _rule(shape: DeltaShape, y: Tensor, decay: Tensor, rate: Tensor, matrices: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Outputs [n, n_v, dim] and the matrices after the last row."""
    n_k, n_v, dim = shape.n_k_heads, shape.n_v_heads, shape.dim
    q, k, v = y.split([n_k * dim, n_k * dim, n_v * dim], 1)
    heads = torch.arange(n_v, device=y.device)
    of = heads % n_k if shape.tiled else heads // (n_v // n_k)
    q, k = (part.unflatten(1, (n_k, dim)) for part in (q, k))
    q, k = (part * torch.rsqrt(part.square().sum(-1, keepdim=True) + eps) for part in (q, k))
    q, k, v = q[:, of] * dim**-0.5, k[:, of], v.unflatten(1, (n_v, dim))
    out = torch.empty_like(v)
    for t in range(len(y)):
        matrices = matrices * decay[t][:, None, None]
        known = torch.einsum("hij,hi->hj", matrices, k[t])
        matrices = matrices + k[t].unsqueeze(2) * (rate[t].unsqueeze(1) * (v[t] - known)).unsqueeze(1)
        out[t] = torch.einsum("hij,hi->hj", matrices, q[t])
    return out, matrices
