"""Qwen3-Next and Qwen3.5: three layers of gated DeltaNet to one of gated attention. Norms are stored around zero; the decay is
stored as its logarithm. Qwen3-Next keeps the projections of a key head together, which the format takes apart; Qwen3.5 keeps
the value heads of a key head together, which the format puts side by side with those of the other key heads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.convert.build import Model, plus_one
from engine.convert.parts import (
    ATTENTION,
    DENSE,
    POST_NORM,
    expert_keys,
    experts,
    frame,
    i32_array,
    rope,
    rope_values,
    shared_expert,
)
from engine.convert.safetensors import F32

_NORMS = {name: plus_one for name in ("attn_norm", "post_attention_norm", "attn_q_norm", "attn_k_norm")}


@dataclass(frozen=True, slots=True)
class _Heads:
    """Key heads, value heads, and the values of each."""

    n_k: int
    n_v: int
    dim: int

    @property
    def per_key(self) -> int:
        """Value heads of a key head."""
        return self.n_v // self.n_k

    def tiled(self, rows: F32, width: int) -> F32:
        """Rows of value heads, `width` each, reordered so that head h belongs to key head h % n_k and not to h // (n_v / n_k)."""
        grouped = rows.reshape(self.n_k, self.per_key, width, *rows.shape[1:])
        return grouped.swapaxes(0, 1).reshape(rows.shape)

    def tiled_tail(self, rows: F32) -> F32:
        """The same for rows that begin with those of queries and keys."""
        start = 2 * self.n_k * self.dim
        return np.concatenate([rows[:start], self.tiled(rows[start:], self.dim)])

    def tiled_columns(self, weights: F32) -> F32:
        """The same for the columns of a projection back."""
        return np.ascontiguousarray(self.tiled(np.ascontiguousarray(weights.T), self.dim).T)


def build(model: Model) -> None:
    """Fills a qwen3next, qwen35 or qwen35moe model. Raises: ConversionError."""
    config = model.config
    kinds = config.layer_types()
    interval = config.integer("full_attention_interval", default=4)
    recurrent = [kind == "linear_attention" for kind in kinds] or [(i + 1) % interval != 0 for i in range(config.n_layers)]
    heads = _Heads(
        config.integer("linear_num_key_heads"), config.integer("linear_num_value_heads"), config.integer("linear_key_head_dim")
    )
    if config.integer("linear_value_head_dim") != heads.dim:
        raise config.error("linear_value_head_dim", "it must equal linear_key_head_dim")
    frame(model, plus_one)
    values = rope_values(config)
    n_rot = int(config.head_dim * values["partial_rotary_factor"])
    rope(model, values, n_rot)
    if model.architecture != "qwen3next":
        sections = list(values.get("mrope_section") or [n_rot // 2, 0, 0])
        model.keys(rope__dimension_sections=i32_array([*sections, 0][:4]))
    model.keys(
        full_attention_interval=interval,
        attention__recurrent_layers=recurrent,
        ssm__conv_kernel=config.integer("linear_conv_kernel_dim"),
        ssm__state_size=heads.dim,
        ssm__group_count=heads.n_k,
        ssm__time_step_rank=heads.n_v,
        ssm__inner_size=heads.n_v * heads.dim,
    )
    if config.n_experts:
        config.require("norm_topk_prob", (True,), True)
        config.require("mlp_only_layers", ([],), [])
        config.require("decoder_sparse_step", (1,), 1)
        expert_keys(model)
        model.keys(expert_shared_feed_forward_length=config.integer("shared_expert_intermediate_size"))
    for layer, is_recurrent in enumerate(recurrent):
        model.renamed(layer, ATTENTION | POST_NORM | DENSE, _NORMS)
        if config.n_experts:
            experts(model, layer)
            shared_expert(model, layer, "shared_expert")
        if is_recurrent:
            (_grouped if model.architecture == "qwen3next" else _tiled)(model, layer, heads)


def _grouped(model: Model, layer: int, heads: _Heads) -> None:
    """Qwen3-Next: q, k, v, z of each key head lie together and are taken apart."""
    at, to = f"{model.at(layer)}linear_attn.", f"blk.{layer}."
    n_q, n_v = heads.n_k * heads.dim, heads.n_v * heads.dim
    hidden = model.config.integer("hidden_size")
    cuts = np.cumsum([heads.dim, heads.dim, heads.per_key * heads.dim])

    def part(rows: F32, index: int) -> F32:
        groups = rows.reshape(heads.n_k, -1, rows.shape[-1])
        return np.split(groups, cuts, axis=1)[index].reshape(-1, rows.shape[-1])

    def qkv(rows: F32) -> F32:
        return np.concatenate([part(rows, i) for i in range(3)])

    model.made(f"{to}attn_qkv.weight", f"{at}in_proj_qkvz.weight", qkv, (2 * n_q + n_v, hidden))
    model.made(f"{to}attn_gate.weight", f"{at}in_proj_qkvz.weight", lambda rows: part(rows, 3), (n_v, hidden))
    model.rows(f"{to}ssm_ba.weight", f"{at}in_proj_ba.weight")
    model.rows(f"{to}ssm_dt.bias", f"{at}dt_bias")
    model.made(f"{to}ssm_a", f"{at}A_log", lambda a: -np.exp(a))
    _convolution(model, layer, lambda rows: rows)
    model.rows(f"{to}ssm_norm.weight", f"{at}norm.weight")
    model.rows(f"{to}ssm_out.weight", f"{at}out_proj.weight")


def _tiled(model: Model, layer: int, heads: _Heads) -> None:
    """Qwen3.5: whatever belongs to value heads is reordered."""
    at, to = f"{model.at(layer)}linear_attn.", f"blk.{layer}."
    model.made(f"{to}attn_qkv.weight", f"{at}in_proj_qkv.weight", heads.tiled_tail)
    model.made(f"{to}attn_gate.weight", f"{at}in_proj_z.weight", lambda rows: heads.tiled(rows, heads.dim))
    model.made(f"{to}ssm_beta.weight", f"{at}in_proj_b.weight", lambda rows: heads.tiled(rows, 1))
    model.made(f"{to}ssm_alpha.weight", f"{at}in_proj_a.weight", lambda rows: heads.tiled(rows, 1))
    model.made(f"{to}ssm_dt.bias", f"{at}dt_bias", lambda rows: heads.tiled(rows, 1))
    model.made(f"{to}ssm_a", f"{at}A_log", lambda a: heads.tiled(-np.exp(a), 1))
    _convolution(model, layer, heads.tiled_tail)
    model.rows(f"{to}ssm_norm.weight", f"{at}norm.weight")
    model.made(f"{to}ssm_out.weight", f"{at}out_proj.weight", heads.tiled_columns)


def _convolution(model: Model, layer: int, change: object) -> None:
    """[channels, 1, taps] to [channels, taps]."""
    source = f"{model.at(layer)}linear_attn.conv1d.weight"
    channels, _, taps = model.checkpoint.entry(source).shape
    assert callable(change)
    model.made(f"blk.{layer}.ssm_conv1d.weight", source, lambda w: change(w.reshape(channels, taps)), (channels, taps))
