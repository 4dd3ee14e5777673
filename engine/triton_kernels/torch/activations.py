"""Gated activations and the choice of experts in torch; see `engine.graph.reference_experts` for what they mean."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.arch.spec import Act, ClampedSwiglu, Routing

MIN_WEIGHT = 2.0**-14
"""The least sum that expert weights are divided by."""


def gated(act: Act, gate: Tensor, up: Tensor) -> Tensor:
    """act(gate) * up, or what `ClampedSwiglu` makes of both."""
    if isinstance(act, ClampedSwiglu):
        g, u = gate.clamp(max=act.limit), up.clamp(-act.limit, act.limit)
        return g * torch.sigmoid(act.alpha * g) * (u + 1)
    return (_silu(gate) if act == "silu" else _gelu_tanh(gate)) * up


def choose(logits: Tensor, routing: Routing, bias: Tensor | None, n_used: int) -> tuple[Tensor, Tensor]:
    """Ids int64 and weights f32, [n_rows, n_used], of the experts that each row of logits [n_rows, n_experts] passes."""
    likely = _likely(logits, routing)
    score = likely if bias is None else likely + bias
    if routing.n_groups > 1:
        score = _within_groups(score, routing)
    chosen = _largest(score, n_used)
    weights = likely.gather(1, chosen)
    if routing.gating == "softmax_chosen":
        weights = torch.softmax(weights, dim=1)
    if routing.norm_weights:
        weights = weights / weights.sum(dim=1, keepdim=True).clamp(min=MIN_WEIGHT)
    return chosen, weights * routing.scale


def _likely(logits: Tensor, routing: Routing) -> Tensor:
    match routing.gating:
        case "softmax":
            return torch.softmax(logits, dim=1)
        case "sigmoid":
            return torch.sigmoid(logits)
        case "softmax_chosen":
            return logits


def _largest(score: Tensor, n: int) -> Tensor:
    """Ids of the n largest of each row; of equals, the lower ids."""
    return torch.sort(score, dim=1, descending=True, stable=True).indices[:, :n]


def _within_groups(score: Tensor, routing: Routing) -> Tensor:
    """score, -infinity for the experts of groups that are not among the best n_groups_used."""
    groups = score.view(len(score), routing.n_groups, -1)
    of_group = groups.topk(min(2, groups.shape[2]), dim=2).values.sum(dim=2)
    best = _largest(of_group, routing.n_groups_used)
    dropped = torch.ones_like(of_group, dtype=torch.bool).scatter_(1, best, False)
    return groups.masked_fill(dropped.unsqueeze(2), -math.inf).view_as(score)


def _silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def _gelu_tanh(x: Tensor) -> Tensor:
    return x * (0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))))
