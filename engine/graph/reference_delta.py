"""Gated DeltaNet in numpy, token by token: the truth for its compiled forms. See `engine.arch.spec.DeltaNet` for the formulas."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from engine.arch.spec import DeltaShape

F32 = npt.NDArray[np.float32]


@dataclass(slots=True)
class DeltaState:
    """What one sequence remembers in one layer. past: [n_taps - 1, n_channels], the newest last; matrices: [n_v, dim, dim]."""

    past: F32
    matrices: F32

    @classmethod
    def empty(cls, shape: DeltaShape) -> DeltaState:
        """The state before the first token."""
        n, dim = shape.n_v_heads, shape.dim
        return cls(np.zeros((shape.n_taps - 1, shape.n_channels), np.float32), np.zeros((n, dim, dim), np.float32))


@dataclass(slots=True)
class DeltaStates:
    """The states of a model by layer and slot; a slot is replaced, never changed, so that others may hold what it held."""

    by_place: dict[tuple[int, int], DeltaState] = field(default_factory=dict)

    def read(self, layer: int, slot: int, is_first: bool, shape: DeltaShape) -> DeltaState:
        """The state in a slot; an empty one for the first token of a sequence."""
        return DeltaState.empty(shape) if is_first else self.by_place[layer, slot]

    def write(self, layer: int, slot: int, state: DeltaState) -> None:
        """Puts a state into a slot."""
        self.by_place[layer, slot] = state


@dataclass(frozen=True, slots=True)
class DeltaInputs:
    """Rows of one sequence. u: [n, n_channels] before the convolution; z: [n, n_v, dim]; beta, alpha: [n, n_v]."""

    u: F32
    z: F32
    beta: F32
    alpha: F32


def split_inputs(shape: DeltaShape, x: F32, z: F32, beta: F32, alpha: F32) -> DeltaInputs:
    """The projections in the order of channels and value heads, whatever the order of their rows."""
    n, n_k, dim, each = len(x), shape.n_k_heads, shape.dim, shape.n_v_heads // shape.n_k_heads

    def by_head(values: F32) -> F32:
        """[n, n_k, each * width] of key heads to [n, n_v * width]."""
        heads = values.reshape(n, n_k, each, -1)
        return (heads.swapaxes(1, 2) if shape.tiled else heads).reshape(n, -1)

    if shape.joined:
        q, k, v, z = np.split(x.reshape(n, n_k, -1), [dim, 2 * dim, (2 + each) * dim], axis=2)
        x, z = np.concatenate([q.reshape(n, -1), k.reshape(n, -1), by_head(v)], axis=1), by_head(z)
    if shape.paired:
        beta, alpha = (by_head(half) for half in np.split(beta.reshape(n, n_k, 2 * each), 2, axis=2))
    heads = (n, shape.n_v_heads)
    return DeltaInputs(x, z.reshape(*heads, dim), beta.reshape(heads), alpha.reshape(heads))


def convolve(u: F32, past: F32, taps: F32) -> tuple[F32, F32]:
    """silu of the causal convolution [n, n_channels], and the new past. taps: [n_channels, n_taps], the last for the newest."""
    n, n_taps = len(u), taps.shape[1]
    seen = np.concatenate([past, u])
    y = sum((seen[j : j + n] * taps[:, j] for j in range(n_taps)), np.zeros_like(u))
    return np.divide(y, 1.0 + np.exp(-y), dtype=np.float32), seen[len(seen) - n_taps + 1 :]


def delta_rule(
    shape: DeltaShape, y: F32, decay: F32, rate: F32, matrices: F32, eps: float, marks: tuple[int, ...] = ()
) -> tuple[F32, list[F32]]:
    """Outputs [n, n_v, dim], and the matrices after the rows of `marks` and after the last.

    y: [n, n_channels] after the convolution; decay, rate: [n, n_v], factors of the matrix and of what is added to it.
    """
    n, n_k, n_v, dim = len(y), shape.n_k_heads, shape.n_v_heads, shape.dim
    q, k, v = np.split(y, [n_k * dim, 2 * n_k * dim], axis=1)
    of = np.arange(n_v) % n_k if shape.tiled else np.arange(n_v) // (n_v // n_k)
    q, k, v = (
        _unit(q.reshape(n, n_k, dim), eps) * np.float32(dim**-0.5),
        _unit(k.reshape(n, n_k, dim), eps),
        v.reshape(n, n_v, dim),
    )
    out, kept, now = np.empty((n, n_v, dim), np.float32), [], matrices
    for t in range(n):
        now = now * decay[t][:, None, None]
        known = np.einsum("hij,hi->hj", now, k[t, of])
        now = now + k[t, of][:, :, None] * (rate[t][:, None] * (v[t] - known))[:, None, :]
        out[t] = np.einsum("hij,hi->hj", now, q[t, of])
        if t + 1 in marks:
            kept.append(now)
    return out, [*kept, now]


def gates(inputs: DeltaInputs, dt: F32, a: F32) -> tuple[F32, F32]:
    """(decay, rate), [n, n_v] each: exp(min(0, a) softplus(alpha + dt)) and sigmoid(beta)."""
    decay: F32 = np.exp(np.minimum(a, 0) * np.logaddexp(np.float32(0), inputs.alpha + dt))
    rate: F32 = np.float32(1) / (np.float32(1) + np.exp(-inputs.beta))
    return decay, rate


def gated_norm(x: F32, z: F32, weight: F32, eps: float) -> F32:
    """RMS norm over the last axis, times weight and silu(z)."""
    normed: F32 = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps)) * weight
    gated: F32 = np.divide(normed * z, 1.0 + np.exp(-z), dtype=np.float32)
    return gated


def _unit(x: F32, eps: float) -> F32:
    long: F32 = x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + np.float32(eps))
    return long
