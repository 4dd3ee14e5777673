"""Linears, experts, norms and sums in torch: weights are dequantised to f32, slice by slice, and multiplied as f32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from engine.arch.spec import Act, Routing
from engine.triton_kernels.formats import unsupported
from engine.triton_kernels.kernels import Allocate
from engine.triton_kernels.tensors import Acts, Choice, Matrix, NormWeight, Pooled, StepInputs, Tally
from engine.triton_kernels.torch.activations import choose, gated
from engine.triton_kernels.torch.dequantise import dequantise

_SLICE = 1 << 24
"""Weights that are dequantised at a time: 64 MiB of f32."""


class LinearForms:
    """See `engine.triton_kernels.kernels.Kernels` for each method. Activations are f32 with every setting."""

    def supports(self, op: Literal["embed", "linear", "experts"], format: str) -> str | None:
        """None, or why weights of this format cannot be read."""
        return unsupported(format)

    def acts(self, allocate: Allocate, n_rows: int, width: int, formats: frozenset[str], *, f32: bool) -> Acts:
        """f32 rows."""
        return Acts(allocate((n_rows, width), "float32"), None, None, None)

    def embed(self, step: StepInputs, matrix: Matrix, scale: float, out: Tensor) -> None:
        """See LaneEmbed."""
        out.copy_(dequantise(matrix, step.token_ids.long()) * scale)

    def norm(self, x: Tensor, norm: NormWeight, n_heads: int, out: Tensor, *, add: bool) -> None:
        """See LaneNorm."""
        y = normed(x.reshape(len(x), n_heads, -1), norm).reshape(out.shape)
        out.copy_(out + y if add else y)

    def prepare(self, x: Tensor, acts: Acts, *, rows: Tensor | None, norm: NormWeight | None) -> None:
        """acts = x, gathered, normed."""
        chosen = x if rows is None else x[rows.long()]
        _values(acts).copy_(chosen if norm is None else normed(chosen, norm))

    def linear(
        self,
        acts: Acts,
        matrices: Sequence[Matrix],
        biases: Sequence[Tensor | None],
        outs: Sequence[Tensor],
        epilogue: Literal["store", "add"] | Act,
        softcap: float,
    ) -> None:
        """See LaneLinear."""
        x = _values(acts)
        if epilogue != "store" and epilogue != "add":
            gate, up = (product(x, matrix, bias) for matrix, bias in zip(matrices, biases, strict=True))
            outs[0].copy_(gated(epilogue, gate, up))
            return
        for matrix, bias, out in zip(matrices, biases, outs, strict=True):
            y = product(x, matrix, bias)
            if softcap:
                y = softcap * torch.tanh(y / softcap)
            out.copy_(out + y if epilogue == "add" else y)

    def route(
        self,
        acts: Acts,
        router: Matrix,
        bias: Tensor | None,
        pick_bias: Tensor | None,
        scores: Tensor,
        choice: Choice,
        routing: Routing,
        tally: Tally | None = None,
        pool: Pooled | None = None,
    ) -> None:
        """scores = router x, then the choice."""
        scores.copy_(product(_values(acts), router, bias))
        chosen, weights = choose(scores, routing, pick_bias, choice.chosen.shape[1])
        choice.chosen.copy_(chosen)
        choice.weights.copy_(weights)
        if tally is not None and tally.ids is not None:
            tally.ids.copy_(chosen)
        if tally is not None and tally.counts is not None:
            tally.counts.add_(torch.bincount(chosen.reshape(-1), minlength=len(tally.counts)))
        if pool is not None:
            pool.here.copy_(pool.slot_of[chosen.long()])
            pool.there.copy_(torch.where(pool.here < 0, choice.chosen, -1))

    def prepare_route(
        self,
        x: Tensor,
        norm: NormWeight | None,
        acts: Acts,
        router: Matrix,
        bias: Tensor | None,
        pick_bias: Tensor | None,
        scores: Tensor,
        choice: Choice,
        routing: Routing,
        tally: Tally | None = None,
        pool: Pooled | None = None,
    ) -> bool:
        """Nothing is gained by it here."""
        return False

    def experts_up(
        self,
        acts: Acts,
        gate: Matrix,
        up: Matrix,
        gate_bias: Tensor | None,
        up_bias: Tensor | None,
        choice: Choice,
        act: Act,
        out: Tensor,
    ) -> None:
        """A row of out for each row and expert that it passes."""
        x, n_used = _values(acts), choice.chosen.shape[1]
        out.zero_()
        for expert, slots in _passed(choice):
            rows = x[slots // n_used]
            y = gated(act, product(rows, gate, gate_bias, expert), product(rows, up, up_bias, expert))
            out[slots] = y * choice.weights.view(-1, 1)[slots]

    def experts_down(
        self,
        acts: Acts,
        down: Matrix,
        bias: Tensor | None,
        choice: Choice,
        out: Tensor,
        *,
        add: bool,
        beside: Tensor | None,
        share: Tensor | None,
    ) -> None:
        """The sum over the experts of a row."""
        x, (n_rows, n_used) = _values(acts), choice.chosen.shape
        y = torch.zeros((n_rows * n_used, down.n_out), device=out.device)
        for expert, slots in _passed(choice):
            y[slots] = product(x[slots], down, None, expert)
            if bias is not None:
                y[slots] += choice.weights.view(-1, 1)[slots] * bias[expert]
        total = y.view(n_rows, n_used, -1).sum(dim=1)
        if beside is not None:
            total += beside if share is None else torch.sigmoid(share) * beside
        out.copy_(out + total if add else total)

    def add(self, x: Tensor, y: Tensor, share: Tensor | None) -> None:
        """x += y, or sigmoid(share) y."""
        x.add_(y if share is None else torch.sigmoid(share) * y)

    def gated_act(self, gate: Tensor, up: Tensor, act: Act, out: Tensor) -> None:
        """out = act(gate) * up."""
        out.copy_(gated(act, gate, up))

    def rows(self, x: Tensor, rows: Tensor, out: Tensor) -> None:
        """out[i] = x[rows[i]]."""
        out.copy_(x[rows.long()])


def normed(x: Tensor, norm: NormWeight) -> Tensor:
    """RMS norm over the last axis."""
    return x * (1 / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + norm.eps)) * norm.weight


def product(x: Tensor, matrix: Matrix, bias: Tensor | None, index: int = 0) -> Tensor:
    """x times the transpose of matrix `index`, plus its bias ([n_out], or [n_matrices, n_out]): f32 [n_rows, n_out]."""
    y = torch.empty((len(x), matrix.n_out), device=x.device)
    step = max(1, _SLICE // matrix.n_in)
    for start in range(0, matrix.n_out, step):
        rows = slice(start, min(start + step, matrix.n_out))
        y[:, rows] = x @ dequantise(matrix, rows, index).T
    return y if bias is None else y + (bias if bias.dim() == 1 else bias[index])


def _values(acts: Acts) -> Tensor:
    if acts.values is None:
        raise ValueError("the torch kernels multiply f32 rows, made by their own `acts`")
    return acts.values


def _passed(choice: Choice) -> Iterator[tuple[int, Tensor]]:
    """Experts that some row passes, each with its slots (row * n_used + place): int64 [n]."""
    flat = choice.chosen.reshape(-1)
    for expert in torch.unique(flat).tolist():
        if expert >= 0:
            yield expert, torch.nonzero(flat == expert).squeeze(1)
