"""DeepSeek V2 and V3, R1, Kimi-K2, as `deepseek2`: latent attention, whose kv_b is taken apart into its key half, transposed,
and its value half, so that decoding can stay in the latent space."""

from __future__ import annotations

import numpy as np

from engine.convert.build import Model
from engine.convert.parts import (
    ATTENTION,
    DENSE,
    FFN_NORM,
    expert_keys,
    experts,
    frame,
    leading_dense,
    rope,
    rope_values,
    shared_expert,
)

_LATENT = {
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
}
_SOFTMAX, _SIGMOID = 1, 2


def build(model: Model) -> None:
    """Fills the model. Raises: ConversionError."""
    config = model.config
    frame(model)
    rank, n_rot = config.integer("kv_lora_rank"), config.integer("qk_rope_head_dim")
    n_nope, v_dim = config.integer("qk_nope_head_dim"), config.integer("v_head_dim")
    values = rope_values(config)
    rope(model, values, n_rot)
    if values["rope_type"] == "yarn":
        model.keys(rope__scaling__yarn_log_multiplier=0.1 * float(values.get("mscale_all_dim") or 1.0))
    model.keys(
        attention__head_count_kv=1,
        attention__key_length=rank + n_rot,
        attention__value_length=rank,
        attention__key_length_mla=n_nope + n_rot,
        attention__value_length_mla=v_dim,
        attention__kv_lora_rank=rank,
    )
    if config.first("q_lora_rank"):
        model.keys(attention__q_lora_rank=config.integer("q_lora_rank"))
    n_dense = leading_dense(config)
    _router_keys(model, n_dense)
    for layer in range(config.n_layers):
        model.renamed(layer, ATTENTION | FFN_NORM | _LATENT | (DENSE if layer < n_dense else {}))
        _kv_b(model, layer, n_nope, v_dim, rank)
        if layer >= n_dense:
            experts(model, layer)
            bias = f"{model.at(layer)}mlp.gate.e_score_correction_bias"
            if bias in model.checkpoint:
                model.rows(f"blk.{layer}.exp_probs_b.bias", bias)
            shared_expert(model, layer, "shared_experts")


def _router_keys(model: Model, n_dense: int) -> None:
    config = model.config
    # V3 says so by its class; V2 has a key.
    sigmoid = config.architecture.startswith("DeepseekV3") or config.first("scoring_func") == "sigmoid"
    expert_keys(model)
    model.keys(
        leading_dense_block_count=n_dense,
        expert_shared_count=config.integer("n_shared_experts", default=0),
        expert_weights_scale=config.number("routed_scaling_factor", default=1.0),
        expert_weights_norm=config.flag("norm_topk_prob", sigmoid),
        expert_gating_func=_SIGMOID if sigmoid else _SOFTMAX,
        expert_group_count=config.integer("n_group", default=1),
        expert_group_used_count=config.integer("topk_group", default=1),
    )
    if not sigmoid and config.integer("n_group", default=1) > 1:
        model.notes.append("groups of experts are ranked by their two best, not by their best: files have no key for it")


def _kv_b(model: Model, layer: int, n_nope: int, v_dim: int, rank: int) -> None:
    n_heads, source = model.config.n_heads, f"{model.at(layer)}self_attn.kv_b_proj.weight"

    def heads(weights: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return weights.reshape(n_heads, n_nope + v_dim, rank)

    model.made(f"blk.{layer}.attn_k_b.weight", source, lambda w: heads(w)[:, :n_nope].swapaxes(1, 2), (n_heads, rank, n_nope))
    model.made(f"blk.{layer}.attn_v_b.weight", source, lambda w: heads(w)[:, n_nope:], (n_heads, v_dim, rank))
