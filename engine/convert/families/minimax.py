"""MiniMax M2, as `minimax-m2`: norms over all heads at once, part of a head turns, a sigmoid router with a bias for choosing."""

from __future__ import annotations

from engine.convert.build import Model
from engine.convert.parts import ATTENTION, FFN_NORM, expert_keys, experts, frame, rope, rope_values

_SIGMOID = 2


def build(model: Model) -> None:
    """Fills the model. Raises: ConversionError."""
    config = model.config
    config.require("qk_norm_type", ("per_layer",), "per_layer")
    config.require("scoring_func", ("sigmoid",), "sigmoid")
    config.require("shared_intermediate_size", (0,), 0)
    frame(model)
    values = rope_values(config)
    rope(model, values, config.integer("rotary_dim", default=int(config.head_dim * values["partial_rotary_factor"])))
    expert_keys(model)
    model.keys(expert_gating_func=_SIGMOID)
    for layer in range(config.n_layers):
        model.renamed(layer, ATTENTION | FFN_NORM)
        experts(model, layer, "block_sparse_moe")
        model.rows(f"blk.{layer}.exp_probs_b.bias", f"{model.at(layer)}block_sparse_moe.e_score_correction_bias")
