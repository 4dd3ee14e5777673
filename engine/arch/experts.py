"""Mixtures of experts as families read them: experts, their router, and the expert that every row passes."""

from __future__ import annotations

from typing import Literal

from engine.arch.hparams import Header
from engine.arch.parts import dense_ffn
from engine.arch.spec import DEFAULT_ROUTING, Act, Linear, MoeFfn, Routing, SharedExpert
from engine.errors import GgufError, UnsupportedModel

MAX_EXPERTS = 4096

Gating = Literal["softmax", "sigmoid", "softmax_chosen"]
_GATINGS: tuple[Gating, ...] = ("softmax", "sigmoid", "softmax_chosen")
"""By expert_gating_func - 1."""


def moe_ffn(
    header: Header,
    n_embd: int,
    index: int,
    n_ff: int,
    routing: Routing = DEFAULT_ROUTING,
    *,
    shared: SharedExpert | None = None,
    act: Act = "silu",
) -> MoeFfn:
    """The router and the experts of block `index`, each n_ff wide. Biases are read where the file has them.

    Raises:
        GgufError: missing or contradicting metadata and tensors.
    """
    at = f"blk.{index}"
    n_experts = header.integer("expert_count", low=1, high=MAX_EXPERTS)
    n_used = header.of_layer("expert_used_count", index, high=n_experts)
    _check_groups(header, routing, n_experts, n_used)
    router = header.linear(f"{at}.ffn_gate_inp", n_embd, n_experts)
    if header.has(f"{at}.ffn_gate_up_exps.weight"):
        both = header.tensor(f"{at}.ffn_gate_up_exps.weight", n_embd, 2 * n_ff, n_experts)
        gate = up = Linear(both, n_embd, n_ff)
    else:
        gate = _experts(header, f"{at}.ffn_gate_exps", n_embd, n_ff, n_experts)
        up = _experts(header, f"{at}.ffn_up_exps", n_embd, n_ff, n_experts)
    return MoeFfn(
        router=router,
        gate=gate,
        up=up,
        down=_experts(header, f"{at}.ffn_down_exps", n_ff, n_embd, n_experts),
        n_experts=n_experts,
        n_used=n_used,
        routing=routing,
        act=act,
        shared=shared,
    )


def routing(header: Header, index: int, gating: Gating, *, norm_weights: bool = False) -> Routing:
    """How the router of block `index` chooses. gating, norm_weights: where the file does not say.

    Raises:
        UnsupportedModel: another gating function. GgufError: metadata out of range, tensors of another shape.
    """
    code = header.integer("expert_gating_func", 0, high=1 << 16)
    if code > len(_GATINGS):
        raise UnsupportedModel(
            f"{header.key('expert_gating_func')} is {code}; this version runs 1 (softmax), 2 (sigmoid) and "
            "3 (softmax of the chosen)"
        )
    bias = f"blk.{index}.exp_probs_b.bias"
    n_groups = header.integer("expert_group_count", 1, high=MAX_EXPERTS) or 1
    return Routing(
        gating=_GATINGS[code - 1] if code else gating,
        bias=header.tensor(bias, header.integer("expert_count", low=1, high=MAX_EXPERTS)) if header.has(bias) else None,
        n_groups=n_groups,
        n_groups_used=header.integer("expert_group_used_count", n_groups, low=1, high=n_groups) if n_groups > 1 else 1,
        norm_weights=header.flag("expert_weights_norm", norm_weights),
        scale=header.number("expert_weights_scale", 1.0, low=0.0, high=1e4) or 1.0,  # 0 means "not scaled"
    )


def shared_expert(header: Header, n_embd: int, index: int, n_ff: int, *, gated: bool = False) -> SharedExpert:
    """The expert of block `index` that every row passes, n_ff wide; gated: it has a gate of its own. Raises GgufError."""
    at = f"blk.{index}"
    return SharedExpert(
        ffn=dense_ffn(header, n_embd, index, n_ff, "_shexp"),
        gate=_row(header, f"{at}.ffn_gate_inp_shexp.weight", n_embd) if gated else None,
    )


def _experts(header: Header, name: str, n_in: int, n_out: int, n_experts: int) -> Linear:
    bias = f"{name}.bias"
    return Linear(
        header.tensor(f"{name}.weight", n_in, n_out, n_experts),
        n_in,
        n_out,
        header.tensor(bias, n_out, n_experts) if header.has(bias) else None,
    )


def _row(header: Header, name: str, n_in: int) -> Linear:
    """A matrix of one row, which files write with one dimension or two."""
    found = header.tensors.get(name)
    return Linear(header.tensor(name, n_in, *((1,) if found is not None and len(found.shape) > 1 else ())), n_in, 1)


def _check_groups(header: Header, routing: Routing, n_experts: int, n_used: int) -> None:
    if n_experts % routing.n_groups:
        raise GgufError(
            f"{header.key('expert_group_count')} {routing.n_groups} does not divide the {n_experts} experts; "
            "the metadata contradicts itself"
        )
    if routing.n_groups_used * (n_experts // routing.n_groups) < n_used:
        raise GgufError(
            f"{header.key('expert_used_count')} is {n_used}, {routing.n_groups_used} of {routing.n_groups} groups have "
            "fewer experts; the metadata contradicts itself"
        )
