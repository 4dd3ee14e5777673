"""Ministral 3 as `mistral3`: a llama with YaRN whose queries grow with the position. Older Mistral models that come with a
picture half say the same class and are plain `llama` files."""

from __future__ import annotations

import math

from engine.convert.build import Model
from engine.convert.families import llama
from engine.convert.parts import rope_values


def build(model: Model) -> None:
    """Fills the model. Raises: ConversionError."""
    config = model.config
    if config.first("model_type") != "ministral3":
        model.architecture = "llama"
        llama.build(model)
        return
    llama.build(model)
    values = rope_values(config)
    mscale, of_all = values.get("mscale"), values.get("mscale_all_dim")
    if values["rope_type"] == "yarn" and mscale and of_all and not values.get("attention_factor"):
        # Magnitude: get(mscale) / get(of_all), where files give get(1) / get(log_multiplier) times attn_factor.
        model.keys(rope__scaling__yarn_log_multiplier=float(of_all))
        if mscale != 1:
            grown = 0.1 * math.log(float(values["factor"]))
            model.keys(rope__scaling__attn_factor=(grown * mscale + 1) / (grown + 1))
    if values.get("llama_4_scaling_beta"):
        model.keys(attention__temperature_scale=float(values["llama_4_scaling_beta"]))
