"""Gated activations, the choice of experts, and experts, in numpy float32; see `engine.graph.ops` for what they mean."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from engine.arch.spec import Act, ClampedSwiglu, Routing
from engine.graph.ops import Experts

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

MIN_WEIGHT = np.float32(2**-14)
"""The least sum that expert weights are divided by."""


def route(logits: F32, routing: Routing, bias: F32 | None, n_used: int) -> tuple[I64, F32]:
    """Ids and weights, [n_rows, n_used], of the experts that each row of logits [n_rows, n_experts] passes. bias: [n_experts]."""
    likely = _likely(logits, routing)
    score = likely if bias is None else likely + bias
    if routing.n_groups > 1:
        score = _within_groups(score, routing)
    chosen = _largest(score, n_used)
    weights = np.take_along_axis(likely, chosen, axis=-1)
    if routing.gating == "softmax_chosen":
        weights = softmax(weights)
    if routing.norm_weights:
        weights = weights / np.maximum(weights.sum(axis=-1, keepdims=True), MIN_WEIGHT)
    return chosen, weights * np.float32(routing.scale)


def experts(weight: Callable[[str], F32], op: Experts, x: F32, chosen: F32, weights: F32) -> F32:
    """The experts' part of the rows x, [n_rows, width of out]. weight: a tensor by name, numpy order."""
    gate, up, down = weight(op.gate), weight(op.up), weight(op.down)  # [n_experts, n_out, n_in]
    if op.gate == op.up:
        gate, up = gate[:, : op.n_ff], up[:, op.n_ff :]
    out = np.zeros((len(x), op.out.width), np.float32)

    def product(rows: F32, matrices: F32, bias: str | None, expert: int) -> F32:
        y: F32 = rows @ matrices[expert].T
        return y if bias is None else y + weight(bias)[expert]

    for expert in range(op.n_experts):
        rows, places = np.nonzero(chosen == expert)
        act = gated(op.act, product(x[rows], gate, op.gate_bias, expert), product(x[rows], up, op.up_bias, expert))
        out[rows] += weights[rows, places][:, None] * product(act, down, op.down_bias, expert)
    return out


def gated(act: Act, gate: F32, up: F32) -> F32:
    """What a gated feed-forward network hands to its last matrix."""
    if isinstance(act, ClampedSwiglu):
        g, u = np.minimum(gate, np.float32(act.limit)), np.clip(up, np.float32(-act.limit), np.float32(act.limit))
        return g * sigmoid(np.float32(act.alpha) * g) * (u + np.float32(1.0))
    return (_silu(gate) if act == "silu" else _gelu_tanh(gate)) * up


def softmax(scores: F32, sink: float | None = None) -> F32:
    """Softmax over the last axis, f32. sink: a logit that takes its part and is not among the results."""
    top = scores.max(axis=-1, keepdims=True)
    if sink is not None:
        top = np.maximum(top, np.float32(sink))
    e: F32 = np.exp(scores - top)
    total: F32 = e.sum(axis=-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(np.float32(sink) - top)
    return e / total


def sigmoid(x: F32) -> F32:
    """1 / (1 + exp(-x)), f32; exp may overflow to infinity, the limit is right."""
    with np.errstate(over="ignore"):
        return np.divide(1.0, 1.0 + np.exp(-x), dtype=np.float32)


def _likely(logits: F32, routing: Routing) -> F32:
    match routing.gating:
        case "softmax":
            return softmax(logits)
        case "sigmoid":
            return sigmoid(logits)
        case "softmax_chosen":
            return logits


def _largest(score: F32, n: int) -> I64:
    order: I64 = np.argsort(-score, axis=-1, kind="stable")
    return order[..., :n]


def _within_groups(score: F32, routing: Routing) -> F32:
    """score, -infinity for the experts of groups that are not among the best n_groups_used."""
    n_rows, n_experts = score.shape
    groups = score.reshape(n_rows, routing.n_groups, n_experts // routing.n_groups)
    of_group = np.sort(groups, axis=-1)[..., -2:].sum(axis=-1)
    kept = np.zeros((n_rows, routing.n_groups), bool)
    np.put_along_axis(kept, _largest(of_group, routing.n_groups_used), True, axis=-1)
    return np.where(kept[..., None], groups, np.float32(-np.inf)).reshape(n_rows, n_experts)


def _silu(x: F32) -> F32:
    return np.divide(x, 1.0 + np.exp(-x), dtype=np.float32)


def _gelu_tanh(x: F32) -> F32:
    inner = np.float32(math.sqrt(2.0 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.multiply(x, 0.5 * (1.0 + np.tanh(inner)), dtype=np.float32)
