"""A model file that is a header in front of a hole: as large as real ones, without their bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.gguf import types
from tests.helpers.gguf_builder import array_of, assemble, byte_alphabet, pair, tensor_record

ALIGNMENT = 32


def hollow_mixture(path: Path, n_layers: int = 94) -> Path:
    """A file with the shapes of Qwen3-235B-A22B in Q4_K, a hole of 130 GB: 128 experts a layer, 8 used, a vocabulary of 152k."""
    n_embd, n_heads, n_kv, dim, ff, experts, n_vocab = 4096, 64, 4, 128, 1536, 128, 151_936
    tokens = byte_alphabet() + [f"t{i}" for i in range(n_vocab - 256)]
    metadata: dict[str, Any] = {
        "general.architecture": "qwen3moe",
        "general.name": "hollow",
        "qwen3moe.block_count": n_layers,
        "qwen3moe.context_length": 131_072,
        "qwen3moe.embedding_length": n_embd,
        "qwen3moe.feed_forward_length": 12_288,
        "qwen3moe.expert_feed_forward_length": ff,
        "qwen3moe.expert_count": experts,
        "qwen3moe.expert_used_count": 8,
        "qwen3moe.attention.head_count": n_heads,
        "qwen3moe.attention.head_count_kv": n_kv,
        "qwen3moe.attention.key_length": dim,
        "qwen3moe.attention.value_length": dim,
        "qwen3moe.attention.layer_norm_rms_epsilon": 1e-6,
        "qwen3moe.rope.freq_base": 1e6,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": array_of(types.STRING, tokens),
        "tokenizer.ggml.token_type": array_of(types.INT32, [1] * n_vocab),
        "tokenizer.ggml.merges": array_of(types.STRING, ["t e"]),
    }
    shapes: list[tuple[str, tuple[int, ...]]] = [("token_embd.weight", (n_embd, n_vocab)), ("output.weight", (n_embd, n_vocab))]
    shapes.append(("output_norm.weight", (n_embd,)))
    for i in range(n_layers):
        at = f"blk.{i}."
        shapes += [
            (at + "attn_norm.weight", (n_embd,)),
            (at + "attn_q.weight", (n_embd, n_heads * dim)),
            (at + "attn_k.weight", (n_embd, n_kv * dim)),
            (at + "attn_v.weight", (n_embd, n_kv * dim)),
            (at + "attn_q_norm.weight", (dim,)),
            (at + "attn_k_norm.weight", (dim,)),
            (at + "attn_output.weight", (n_heads * dim, n_embd)),
            (at + "ffn_norm.weight", (n_embd,)),
            (at + "ffn_gate_inp.weight", (n_embd, experts)),
            (at + "ffn_gate_exps.weight", (n_embd, ff, experts)),
            (at + "ffn_up_exps.weight", (n_embd, ff, experts)),
            (at + "ffn_down_exps.weight", (ff, n_embd, experts)),
        ]
    records, at_byte = [], 0
    for name, shape in shapes:
        kind = types.TYPE_IDS["F32" if len(shape) == 1 or "gate_inp" in name else "Q4_K"]
        records.append(tensor_record(name, shape, kind, at_byte))
        at_byte += _nbytes(shape, kind)
    head = assemble((pair(key, value) for key, value in metadata.items()), records, b"", ALIGNMENT)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + at_byte)
    return path


def _nbytes(shape: tuple[int, ...], kind: int) -> int:
    row, n = types.TENSOR_TYPES[kind], 1
    for dim in shape:
        n *= dim
    nbytes = n // row.block * row.block_bytes
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
