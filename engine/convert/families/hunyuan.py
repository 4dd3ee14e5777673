"""Hunyuan with experts (A13B), as `hunyuan-moe`: a softmax router and a shared expert in every layer."""

from __future__ import annotations

from engine.convert.build import Model
from engine.convert.config import Config
from engine.convert.parts import ATTENTION, FFN_NORM, experts, frame, rope, rope_values, shared_expert

_HEAD_NORMS = {"self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm"}


def build(model: Model) -> None:
    """Fills the model. Raises: ConversionError."""
    config = model.config
    config.require("use_qk_norm", (True,), True)
    config.require("use_mixed_mlp_moe", (True,), True)
    frame(model)
    values = rope_values(config)
    if values["rope_type"] == "dynamic" and values.get("alpha"):
        # A fixed alpha does not look at the context: it is another base.
        stretched = values["rope_theta"] * values["alpha"] ** (config.head_dim / (config.head_dim - 2))
        values |= {"rope_type": "default", "rope_theta": stretched}
    rope(model, values, config.head_dim)
    n_ff, n_shared = config.integer("intermediate_size"), of_all_layers(config, "num_shared_expert", 1)
    n_expert_ff, n_experts = of_all_layers(config, "moe_intermediate_size", n_ff), of_all_layers(config, "num_experts", 1)
    model.keys(
        expert_count=n_experts,
        expert_used_count=of_all_layers(config, "moe_topk", 1),
        expert_feed_forward_length=n_expert_ff,
        expert_shared_count=n_shared,
        expert_shared_feed_forward_length=n_ff * n_shared,
    )
    for layer in range(config.n_layers):
        model.renamed(layer, ATTENTION | FFN_NORM | _HEAD_NORMS)
        experts(model, layer, router="gate.wg", n_experts=n_experts)
        shared_expert(model, layer, "shared_mlp")


def of_all_layers(config: Config, name: str, default: int) -> int:
    """A whole number that may be written once for each layer. Raises: ConversionError where layers differ."""
    value = config.first(name, default=default)
    if not isinstance(value, list):
        return config.integer(name, default=default)
    if not value or len(set(value)) != 1 or not isinstance(value[0], int):
        raise config.error(name, "layers that differ are not converted")
    return value[0]
