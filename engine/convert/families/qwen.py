"""Qwen2 and Qwen3, dense and with experts: names change, nothing else."""

from __future__ import annotations

from engine.convert.build import Model
from engine.convert.parts import (
    ATTENTION,
    DENSE,
    FFN_NORM,
    expert_keys,
    experts,
    frame,
    rope,
    rope_values,
    shared_expert,
)


def build_dense(model: Model) -> None:
    """Fills a qwen2 or qwen3 model. Raises: ConversionError."""
    config = model.config
    config.require("use_sliding_window", (False,), False)
    frame(model)
    rope(model, rope_values(config), config.head_dim)
    for layer in range(config.n_layers):
        model.renamed(layer, ATTENTION | FFN_NORM | DENSE)


def build_moe(model: Model) -> None:
    """Fills a qwen2moe or qwen3moe model, whose layers all have experts. Raises: ConversionError."""
    config = model.config
    config.require("use_sliding_window", (False,), False)
    config.require("decoder_sparse_step", (1,), 1)
    config.require("mlp_only_layers", ([],), [])
    # What the router's weights are divided by is part of the architecture.
    normed = model.architecture == "qwen3moe"
    config.require("norm_topk_prob", (normed,), normed)
    frame(model)
    expert_keys(model)
    rope(model, rope_values(config), config.head_dim)
    shared = config.integer("shared_expert_intermediate_size", default=0)
    if shared:
        model.keys(expert_shared_feed_forward_length=shared)
    for layer in range(config.n_layers):
        model.renamed(layer, ATTENTION | FFN_NORM)
        experts(model, layer)
        if shared:
            shared_expert(model, layer, "shared_expert")
