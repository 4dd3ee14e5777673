"""Gemma 3: norms stored around zero, before and after each part; five layers with a window to one without."""

from __future__ import annotations

from engine.convert.build import Model, plus_one
from engine.convert.parts import ATTENTION, DENSE, POST_NORM, frame, rope, rope_values

_PERIOD = 6
_DEFAULTS = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "query_pre_attn_scalar": 256,
}
"""Published files leave out what equals these."""
_NAMES = (
    ATTENTION
    | DENSE
    | POST_NORM
    | {
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    }
)
_NORMS = {
    name: plus_one for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "attn_q_norm", "attn_k_norm")
}


def build(model: Model) -> None:
    """Fills the model. Raises: ConversionError."""
    config = model.config = model.config.with_defaults(_DEFAULTS)
    expected = tuple("full_attention" if i % _PERIOD == _PERIOD - 1 else "sliding_attention" for i in range(config.n_layers))
    if config.layer_types() not in ((), expected):
        raise config.error("layer_types", "converted are models with five layers with a window to one without")
    config.require("attn_logit_softcapping", (None,), None)
    config.require("use_bidirectional_attention", (False,), False)
    frame(model, plus_one)
    rope(model, rope_values(config, "full_attention"), config.head_dim)
    local = rope_values(config, "sliding_attention")
    has_own = isinstance(config.first("rope_parameters", default={}).get("sliding_attention"), dict)
    base = float(local["rope_theta"]) if has_own else config.number("rope_local_base_freq", default=10000.0)
    model.keys(rope__freq_base_swa=base, attention__sliding_window=config.integer("sliding_window"))
    scalar = config.number("query_pre_attn_scalar", default=float(config.head_dim))
    if scalar != config.head_dim:
        model.keys(attention__scale=scalar**-0.5)
    for layer in range(config.n_layers):
        model.renamed(layer, _NAMES, _NORMS)
