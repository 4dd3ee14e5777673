"""Latent attention in numpy, the naive way: keys and values of every head are made from the cached rows, then it is attention."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.arch.spec import HeadMatrices
from engine.graph.ops import LatentAttention

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]


class WeightSource(Protocol):
    """Weights by name."""

    def weight(self, name: str) -> F32:
        """In f32, numpy order."""


def head_matrices(model: WeightSource, part: HeadMatrices) -> F32:
    """[n_heads, n_out, n_in]."""
    n_rows, n_values = (part.n_in, part.n_out) if part.transposed else (part.n_out, part.n_in)
    rows = model.weight(part.weight).reshape(-1, n_values)
    starts = part.first + part.step * np.arange(part.n_heads)
    found: F32 = rows[starts[:, None] + np.arange(n_rows)]
    return found.transpose(0, 2, 1) if part.transposed else found


def attend(model: WeightSource, op: LatentAttention, q: F32, latent: F32, positions: I32) -> F32:
    """The values of n rows, [n, n_heads, v_dim].

    q: [n, n_heads, head_dim], rotated; latent: [n_past, rank + n_rot]; positions: [n].
    """
    part = op.mla
    c, k_pe = latent[:, : part.rank], latent[:, part.rank :]
    k_b, v_b = head_matrices(model, part.k), head_matrices(model, part.v)
    nope = part.k.n_out
    hidden = np.arange(len(latent))[None, :] > positions[:, None]
    out = np.empty((len(q), part.n_heads, part.v.n_out), np.float32)
    for head in range(part.n_heads):
        scores = (q[:, head, :nope] @ (c @ k_b[head].T).T + q[:, head, nope:] @ k_pe.T) * np.float32(part.scale)
        scores[hidden] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out[:, head] = (weights / weights.sum(axis=-1, keepdims=True)) @ (c @ v_b[head].T)
    return out
