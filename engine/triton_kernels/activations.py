# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""Gated activations and softcap inside Triton programs; see `engine.graph.reference_experts` for what they mean."""

from __future__ import annotations

import triton
import triton.language as tl

from engine.arch.spec import Act, ClampedSwiglu


def act_arguments(act: Act) -> tuple[str, float, float]:
    """The name, alpha and limit of an activation, as kernels take them."""
    return ("swiglu", act.alpha, act.limit) if isinstance(act, ClampedSwiglu) else (act, 0.0, 0.0)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), from an exponential that cannot overflow."""
    e = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, e) / (1.0 + e)


@triton.jit
def gated(gate, up, ACT: tl.constexpr, ALPHA: tl.constexpr, LIMIT: tl.constexpr):
    """act(gate) * up, or what `ClampedSwiglu` makes of both."""
    if ACT == "silu":
        return gate * sigmoid(gate) * up
    elif ACT == "gelu_tanh":
        # (1 + tanh(z)) / 2 is sigmoid(2 z).
        return gate * sigmoid(1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)) * up
    else:
        tl.static_assert(ACT == "swiglu")
        g, u = tl.minimum(gate, LIMIT), tl.minimum(tl.maximum(up, -LIMIT), LIMIT)
        return g * sigmoid(ALPHA * g) * (u + 1.0)


@triton.jit
def capped(x, SOFTCAP: tl.constexpr):
    """SOFTCAP * tanh(x / SOFTCAP)."""
    return SOFTCAP * (2.0 * sigmoid(x * (2.0 / SOFTCAP)) - 1.0)
