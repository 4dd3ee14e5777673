"""A model file of which only the header exists: enough to plan, nothing to run. For pictures of models that no disk here holds.

The layout is that of the GGUF specification, version 3: magic, version, counts, keys with typed values, then for each tensor its
name, dimensions (fastest first), type and offset.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_U32, _F32, _BOOL, _STRING, _ARRAY = 4, 6, 7, 8, 9
_ALIGNMENT = 32
_Value = int | float | bool | str
_BLOCKS = {"F32": (0, 1, 4), "Q4_K": (12, 256, 144), "Q6_K": (14, 256, 210), "Q8_0": (8, 32, 34)}
"""Name: (number of the type, values of a block, bytes of a block)."""


@dataclass(frozen=True, slots=True)
class LatentShape:
    """A model of the `deepseek2` architecture. n_dense: its first layers without experts."""

    name: str = "DeepSeek-V3.1 671B"
    n_layers: int = 61
    n_dense: int = 3
    width: int = 7168
    n_heads: int = 128
    n_vocab: int = 129_280
    ffn: int = 18_432
    expert_ffn: int = 2048
    n_experts: int = 256
    n_used: int = 8
    q_rank: int = 1536
    kv_rank: int = 512
    rope: int = 64
    head: int = 128


def write_header(path: Path, shape: LatentShape) -> None:
    """Writes the header of such a model; the file's size says that the weights are there, its blocks do not."""
    tensors = tuple(_tensors(shape))
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(_keys(shape)) + 2)]
    parts += [_text(key) + _value(value) for key, value in _keys(shape).items()]
    parts += _tokens(shape.n_vocab)
    offset = 0
    for name, kind, dims in tensors:
        number, block, nbytes = _BLOCKS[kind]
        parts.append(_text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, number, offset))
        offset += -(-math.prod(dims) // block * nbytes // _ALIGNMENT) * _ALIGNMENT
    header = b"".join(parts)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(-(-len(header) // _ALIGNMENT) * _ALIGNMENT + offset)


def _keys(shape: LatentShape) -> dict[str, _Value]:
    own: dict[str, _Value] = {
        "block_count": shape.n_layers,
        "context_length": 163_840,
        "embedding_length": shape.width,
        "feed_forward_length": shape.ffn,
        "vocab_size": shape.n_vocab,
        "attention.head_count": shape.n_heads,
        "attention.head_count_kv": 1,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.q_lora_rank": shape.q_rank,
        "attention.kv_lora_rank": shape.kv_rank,
        "attention.key_length": shape.kv_rank + shape.rope,
        "attention.value_length": shape.kv_rank,
        "attention.key_length_mla": shape.head + shape.rope,
        "attention.value_length_mla": shape.head,
        "rope.dimension_count": shape.rope,
        "rope.freq_base": 10_000.0,
        "leading_dense_block_count": shape.n_dense,
        "expert_count": shape.n_experts,
        "expert_used_count": shape.n_used,
        "expert_shared_count": 1,
        "expert_feed_forward_length": shape.expert_ffn,
        "expert_gating_func": 2,
        "expert_group_count": 8,
        "expert_group_used_count": 4,
        "expert_weights_scale": 2.5,
        "expert_weights_norm": True,
    }
    general: dict[str, _Value] = {"general.architecture": "deepseek2", "general.name": shape.name, "general.file_type": 15}
    return general | {f"deepseek2.{key}": value for key, value in own.items()}


def _tensors(shape: LatentShape) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """(name, type, dimensions)."""
    width, heads = shape.width, shape.n_heads
    yield "token_embd.weight", "Q4_K", (width, shape.n_vocab)
    for layer in range(shape.n_layers):
        block = {
            "attn_norm": ("F32", (width,)),
            "attn_q_a": ("Q6_K", (width, shape.q_rank)),
            "attn_q_a_norm": ("F32", (shape.q_rank,)),
            "attn_q_b": ("Q6_K", (shape.q_rank, heads * (shape.head + shape.rope))),
            "attn_kv_a_mqa": ("Q6_K", (width, shape.kv_rank + shape.rope)),
            "attn_kv_a_norm": ("F32", (shape.kv_rank,)),
            "attn_k_b": ("Q8_0", (shape.head, shape.kv_rank, heads)),
            "attn_v_b": ("Q8_0", (shape.kv_rank, shape.head, heads)),
            "attn_output": ("Q6_K", (heads * shape.head, width)),
            "ffn_norm": ("F32", (width,)),
            **_feed_forward(shape, dense=layer < shape.n_dense),
        }
        for name, (kind, dims) in block.items():
            suffix = "bias" if name == "exp_probs_b" else "weight"
            yield f"blk.{layer}.{name}.{suffix}", kind, dims
    yield "output_norm.weight", "F32", (width,)
    yield "output.weight", "Q6_K", (width, shape.n_vocab)


def _feed_forward(shape: LatentShape, *, dense: bool) -> dict[str, tuple[str, tuple[int, ...]]]:
    width, inner, many = shape.width, shape.expert_ffn, shape.n_experts
    if dense:
        gates = {name: ("Q6_K", (width, shape.ffn)) for name in ("ffn_gate", "ffn_up")}
        return {**gates, "ffn_down": ("Q6_K", (shape.ffn, width))}
    return {
        "ffn_gate_inp": ("F32", (width, many)),
        "exp_probs_b": ("F32", (many,)),
        "ffn_gate_exps": ("Q4_K", (width, inner, many)),
        "ffn_up_exps": ("Q4_K", (width, inner, many)),
        "ffn_down_exps": ("Q4_K", (inner, width, many)),
        "ffn_gate_shexp": ("Q6_K", (width, inner)),
        "ffn_up_shexp": ("Q6_K", (width, inner)),
        "ffn_down_shexp": ("Q6_K", (inner, width)),
    }


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: _Value) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", _BOOL, value)
        case int():
            return struct.pack("<II", _U32, value)
        case float():
            return struct.pack("<If", _F32, value)
        case str():
            return struct.pack("<I", _STRING) + _text(value)


def _tokens(n_vocab: int) -> list[bytes]:
    """Names for all tokens: nobody writes with them."""
    words = b"".join(_text(f"t{i}") for i in range(n_vocab))
    return [
        _text("tokenizer.ggml.model") + _value("gpt2"),
        _text("tokenizer.ggml.tokens") + struct.pack("<IIQ", _ARRAY, _STRING, n_vocab) + words,
    ]
