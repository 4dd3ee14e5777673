"""Llama, Mistral and Mixtral, as `llama`: rows of queries and keys are reordered, for the format turns neighbouring values."""

from __future__ import annotations

from engine.convert.build import Model
from engine.convert.parts import ATTENTION, DENSE, FFN_NORM, expert_keys, experts, frame, rope, rope_values
from engine.convert.safetensors import F32


def build(model: Model) -> None:
    """Fills the model. Raises: ConversionError."""
    config = model.config
    frame(model)
    rope(model, rope_values(config), config.head_dim)
    n_kv = config.integer("num_key_value_heads", default=config.n_heads)
    changes = {"attn_q": lambda w: interleaved(w, config.n_heads), "attn_k": lambda w: interleaved(w, n_kv)}
    if config.n_experts:
        expert_keys(model)
    if config.first("sliding_window"):
        model.notes.append("the sliding window of attention is left out: files of this architecture have none")
    for layer in range(config.n_layers):
        model.renamed(layer, ATTENTION | FFN_NORM | DENSE, changes)
        if config.n_experts:
            experts(model, layer, "block_sparse_moe")


def interleaved(rows: F32, n_heads: int) -> F32:
    """Rows (or biases) of heads whose halves turn together, as rows whose neighbours do: 0, d/2, 1, d/2 + 1, ..."""
    halves = rows.reshape(n_heads, 2, len(rows) // n_heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)
