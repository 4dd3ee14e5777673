"""ERNIE 4.5 with experts, as `ernie4_5-moe`: a few dense layers, then softmax routers with a bias for choosing. Neighbouring
values turn together in the checkpoint already."""

from __future__ import annotations

from engine.convert.build import Model
from engine.convert.parts import ATTENTION, DENSE, FFN_NORM, experts, frame, rope, rope_values, shared_expert


def build(model: Model) -> None:
    """Fills the model. Raises: ConversionError."""
    config = model.config
    frame(model)
    rope(model, rope_values(config), config.head_dim)
    n_dense = config.integer("moe_layer_start_index", default=1)
    every = config.integer("moe_layer_interval", default=1)
    last = config.integer("moe_layer_end_index", default=-1)
    if -1 < last < config.n_layers - 1:
        raise config.error("moe_layer_end_index", "dense layers after those with experts are not converted")
    n_shared, n_ff = config.integer("moe_num_shared_experts", default=0), config.integer("moe_intermediate_size")
    model.keys(
        expert_count=config.integer("moe_num_experts"),
        expert_used_count=config.integer("moe_k"),
        expert_feed_forward_length=n_ff,
        interleave_moe_layer_step=every,
        leading_dense_block_count=n_dense,
    )
    if n_shared:
        model.keys(expert_shared_count=n_shared, expert_shared_feed_forward_length=n_ff * n_shared)
    for layer in range(config.n_layers):
        if layer < n_dense or (layer + 1) % every:
            model.renamed(layer, ATTENTION | FFN_NORM | DENSE)
            continue
        model.renamed(layer, ATTENTION | FFN_NORM)
        experts(model, layer, n_experts=config.integer("moe_num_experts"))
        bias = f"{model.at(layer)}mlp.moe_statics.e_score_correction_bias"
        if bias in model.checkpoint:
            model.made(f"blk.{layer}.exp_probs_b.bias", bias, lambda b: b.reshape(-1), (config.integer("moe_num_experts"),))
        if n_shared:
            shared_expert(model, layer, "shared_experts")
