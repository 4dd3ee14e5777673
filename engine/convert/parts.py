"""What families share: the tensors around the layers, the common keys, rotations, experts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from engine.convert.build import Model
from engine.convert.config import Config
from engine.convert.safetensors import F32
from engine.convert.writer import Typed
from engine.errors import ConversionError
from engine.gguf import types

ATTENTION = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}
DENSE = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
FFN_NORM = {"post_attention_layernorm": "ffn_norm"}
POST_NORM = {"post_attention_layernorm": "post_attention_norm"}
"""The same tensor: the name that the architecture's files give it differs."""

_EXPERT_NAMES = {"gate": ("gate_proj", "w1"), "up": ("up_proj", "w3"), "down": ("down_proj", "w2")}


def frame(model: Model, norm: Callable[[F32], F32] | None = None) -> None:
    """Embedding, last norm, output, and the keys that every family has. norm: changes the weights of norms."""
    config, prefix = model.config, model.prefix
    model.rows("token_embd.weight", f"{prefix}embed_tokens.weight")
    if norm is None:
        model.rows("output_norm.weight", f"{prefix}norm.weight")
    else:
        model.made("output_norm.weight", f"{prefix}norm.weight", norm)
    head = next((name for name in model.checkpoint.entries if name.endswith("lm_head.weight")), None)
    if head is not None and not config.flag("tie_word_embeddings", False):
        model.rows("output.weight", head)
    n_heads = config.n_heads
    model.keys(
        block_count=config.n_layers,
        context_length=config.integer("max_position_embeddings"),
        embedding_length=config.integer("hidden_size"),
        feed_forward_length=config.integer("intermediate_size", "moe_intermediate_size"),
        vocab_size=model.checkpoint.entry(f"{prefix}embed_tokens.weight").shape[0],
        attention__head_count=n_heads,
        attention__head_count_kv=config.integer("num_key_value_heads", default=n_heads),
        attention__layer_norm_rms_epsilon=config.number("rms_norm_eps"),
        attention__key_length=config.head_dim,
        attention__value_length=config.head_dim,
    )


def rope_values(config: Config, kind: str | None = None) -> dict[str, Any]:
    """The rotation as config.json describes it, old and new spellings alike. kind: of layer, where each has a rotation of its
    own."""
    found = config.first("rope_parameters", "rope_scaling", default={})
    if kind is not None and isinstance(found.get(kind), dict):
        found = found[kind]
    return {
        "rope_type": found.get("rope_type") or found.get("type") or "default",
        "rope_theta": found.get("rope_theta") or config.number("rope_theta", default=10000.0),
        "partial_rotary_factor": found.get("partial_rotary_factor") or config.number("partial_rotary_factor", default=1.0),
        **{key: value for key, value in found.items() if key not in ("rope_type", "type", "rope_theta", "partial_rotary_factor")},
    }


def rope(model: Model, values: Mapping[str, Any], n_rot: int) -> None:
    """The keys of a rotation of n_rot values, and the factors of Llama 3 as a tensor.

    Raises: ConversionError for a scaling that is not converted.
    """
    model.keys(rope__freq_base=float(values["rope_theta"]), rope__dimension_count=n_rot)
    kind = values["rope_type"]
    if kind == "llama3":
        model.constant("rope_freqs.weight", _llama3_factors(values, n_rot))
    elif kind == "linear":
        model.keys(rope__scaling__type="linear", rope__scaling__factor=float(values["factor"]))
    elif kind == "yarn":
        _yarn(model, values)
    elif kind not in ("default", "mrope"):
        raise ConversionError(f"config.json: RoPE of type {kind} is not converted; default, linear, llama3 and yarn are")


def _yarn(model: Model, values: Mapping[str, Any]) -> None:
    factor = float(values["factor"])
    trained = values.get("original_max_position_embeddings") or model.config.integer("max_position_embeddings")
    model.keys(
        rope__scaling__type="yarn",
        rope__scaling__factor=factor,
        rope__scaling__original_context_length=int(trained),
        rope__scaling__yarn_beta_fast=float(values.get("beta_fast") or 32.0),
        rope__scaling__yarn_beta_slow=float(values.get("beta_slow") or 1.0),
    )
    if values.get("truncate") is False:
        model.keys(rope__scaling__yarn_truncate=False)
        model.notes.append("the ends of YaRN's ramp are no whole frequencies; engines without a key for that round them")
    attention_factor = values.get("attention_factor")
    if attention_factor and factor > 1:
        # The format multiplies its own magnitude of YaRN with this.
        model.keys(rope__scaling__attn_factor=attention_factor / (0.1 * math.log(factor) + 1))


def _llama3_factors(values: Mapping[str, Any], n_rot: int) -> F32:
    """What each frequency is divided by: nothing for short waves, `factor` for long ones, smoothly between."""
    frequency = float(values["rope_theta"]) ** -(np.arange(0, n_rot, 2) / n_rot)
    turns = values["original_max_position_embeddings"] * frequency / (2 * math.pi)
    low, high, factor = values["low_freq_factor"], values["high_freq_factor"], values["factor"]
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    factors: F32 = (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)
    return factors


def expert_keys(model: Model) -> None:
    """How many experts there are, how many are used and how wide they are."""
    config = model.config
    model.keys(
        expert_count=config.n_experts,
        expert_used_count=config.integer("num_experts_per_tok", "experts_per_token"),
        expert_feed_forward_length=config.integer("moe_intermediate_size", "intermediate_size"),
    )


def experts(model: Model, layer: int, part: str = "mlp", router: str = "gate", n_experts: int | None = None) -> None:
    """The router and the experts of a layer, whether the checkpoint holds them one by one or all in one tensor. n_experts: where
    the configuration has a name of its own for it."""
    at = f"{model.at(layer)}{part}."
    model.rows(f"blk.{layer}.ffn_gate_inp.weight", f"{at}{router}.weight")
    if f"{at}experts.gate_up_proj" in model.checkpoint:
        _fused_experts(model, layer, f"{at}experts.")
        return
    for ours, theirs in _EXPERT_NAMES.items():
        name = next((one for one in theirs if f"{at}experts.0.{one}.weight" in model.checkpoint), theirs[0])
        sources = [f"{at}experts.{i}.{name}.weight" for i in range(n_experts or model.config.n_experts)]
        model.stack(f"blk.{layer}.ffn_{ours}_exps.weight", sources)


def _fused_experts(model: Model, layer: int, at: str) -> None:
    """gate_up_proj [experts, 2 ff, hidden], gate first, and down_proj [experts, hidden, ff]; some checkpoints hold both
    transposed."""
    hidden, n_ff = model.config.integer("hidden_size"), model.config.integer("moe_intermediate_size")
    shape = model.checkpoint.entry(f"{at}gate_up_proj").shape
    transposed = shape[1:] != (2 * n_ff, hidden)

    def straight(values: F32) -> F32:
        return values.T if transposed else values

    model.slices(f"blk.{layer}.ffn_gate_exps.weight", f"{at}gate_up_proj", lambda w: straight(w)[:n_ff], (n_ff, hidden))
    model.slices(f"blk.{layer}.ffn_up_exps.weight", f"{at}gate_up_proj", lambda w: straight(w)[n_ff:], (n_ff, hidden))
    model.slices(f"blk.{layer}.ffn_down_exps.weight", f"{at}down_proj", straight, (hidden, n_ff))


def shared_expert(model: Model, layer: int, name: str) -> None:
    """The expert that every token passes, `mlp.<name>`, and its gate where it has one."""
    model.renamed(layer, {f"mlp.{name}.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")})
    gate = f"{model.at(layer)}mlp.{name}_gate.weight"
    if gate in model.checkpoint:
        model.rows(f"blk.{layer}.ffn_gate_inp_shexp.weight", gate)


def leading_dense(config: Config) -> int:
    """How many layers at the start have a dense feed-forward part. Raises: ConversionError when others have, too."""
    kinds = tuple(config.first("mlp_layer_types", default=()))
    n_dense = kinds.index("sparse") if kinds else config.integer("first_k_dense_replace", default=0)
    if "dense" in kinds[n_dense:] or config.integer("moe_layer_freq", default=1) != 1:
        raise ConversionError("config.json: dense layers after those with experts are not converted")
    return n_dense


def f32_array(values: list[float]) -> Typed:
    """An array of f32, for a key."""
    return Typed(types.ARRAY, values, types.FLOAT32)


def i32_array(values: list[int]) -> Typed:
    """An array of i32, for a key."""
    return Typed(types.ARRAY, values, types.INT32)
