"""GLM-4.5 and later, as `glm4moe`: half of each head turns; a sigmoid router with a bias for choosing; an expert for all."""

from __future__ import annotations

from engine.convert.build import Model
from engine.convert.parts import (
    ATTENTION,
    DENSE,
    POST_NORM,
    expert_keys,
    experts,
    frame,
    leading_dense,
    rope,
    rope_values,
    shared_expert,
)

_SIGMOID = 2


def build(model: Model) -> None:
    """Fills the model. Raises: ConversionError."""
    config = model.config
    frame(model)
    values = rope_values(config)
    rope(model, values, int(config.head_dim * values["partial_rotary_factor"]))
    n_dense = leading_dense(config)
    expert_keys(model)
    model.keys(
        leading_dense_block_count=n_dense,
        expert_shared_count=config.integer("n_shared_experts", default=0),
        expert_weights_scale=config.number("routed_scaling_factor", default=1.0),
        expert_weights_norm=config.flag("norm_topk_prob", True),
        expert_gating_func=_SIGMOID,
        expert_group_count=config.integer("n_group", default=1),
        expert_group_used_count=config.integer("topk_group", default=1),
        nextn_predict_layers=0,
    )
    for layer in range(config.n_layers):
        model.renamed(layer, ATTENTION | POST_NORM | (DENSE if layer < n_dense else {}))
        if layer >= n_dense:
            experts(model, layer)
            model.rows(f"blk.{layer}.exp_probs_b.bias", f"{model.at(layer)}mlp.gate.e_score_correction_bias")
            shared_expert(model, layer, "shared_experts")
