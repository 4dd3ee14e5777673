"""Headers of the large models that field reports are about, in front of a hole: shapes as public sources give them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

from engine.gguf import types
from engine.quants.formats import BY_NAME
from tests.helpers.gguf_builder import array_of, assemble, byte_alphabet, pair, tensor_record

Kind = Literal["qwen3.5-122b", "qwen3-235b", "deepseek-r1"]
Mix = Literal["Q4_K_M", "IQ4_XS", "F16"]
ALIGNMENT = 32
MIXES: dict[Mix, tuple[str, str, str]] = {
    "Q4_K_M": ("Q4_K", "Q6_K", "Q6_K"),
    "IQ4_XS": ("IQ4_XS", "IQ4_XS", "Q6_K"),
    "F16": ("F16", "F16", "F16"),
}
"""Formats of most tensors, of those thought dear in half of the layers, and of the head."""

Row = tuple[str, str, tuple[int, ...]]
"""Name, format, shape with ne0 first."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the three have in common, and how many layers come before the first with experts."""

    architecture: str
    layers: int
    embd: int
    vocab: int
    experts: int
    expert_ff: int
    dense_layers: int = 0


SHAPES: dict[Kind, Shape] = {
    "qwen3.5-122b": Shape("qwen35moe", 48, 3072, 248_320, 256, 1024),
    "qwen3-235b": Shape("qwen3moe", 94, 4096, 151_936, 128, 1536),
    "deepseek-r1": Shape("deepseek2", 61, 7168, 129_280, 256, 2048, 3),
}
USED = 8


def report_model(kind: Kind, folder: Path, mix: Mix = "Q4_K_M") -> Path:
    """The path of the header in a folder, written where it is not there yet."""
    path = folder / f"{kind}-{mix}.gguf"
    if path.exists():
        return path
    shape, records, at = SHAPES[kind], [], 0
    for name, form, dims in _rows(shape, mix):
        records.append(tensor_record(name, dims, types.TYPE_IDS[form], at))
        nbytes = BY_NAME[form].row_bytes(dims[0]) * prod(dims[1:])
        at += -(-nbytes // ALIGNMENT) * ALIGNMENT
    head = assemble((pair(key, value) for key, value in _metadata(kind, shape).items()), records, b"", ALIGNMENT)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + at)
    return path


def _rows(s: Shape, mix: Mix) -> Iterator[Row]:
    base, high, head = MIXES[mix]
    heads = base if mix == "F16" else "Q8_0"
    yield "token_embd.weight", base, (s.embd, s.vocab)
    for i in range(s.layers):
        eighth = s.layers // 8
        dear = high if i < eighth or i >= 7 * s.layers // 8 or (i - eighth) % 3 == 2 else base
        rows: tuple[Row, ...]
        if s.architecture == "deepseek2":
            rows = _latent(base, heads)
        elif s.architecture == "qwen35moe" and (i + 1) % 4:
            rows = _delta(s.embd, base)
        else:
            rows = _attention(s, base, dear)
        norm = "post_attention_norm" if s.architecture == "qwen35moe" else "ffn_norm"
        ffn = _dense(base, dear) if i < s.dense_layers else _experts(s, base, dear)
        for name, form, dims in (("attn_norm.weight", "F32", (s.embd,)), *rows, (f"{norm}.weight", "F32", (s.embd,)), *ffn):
            yield f"blk.{i}.{name}", form, dims
    yield "output_norm.weight", "F32", (s.embd,)
    yield "output.weight", head, (s.embd, s.vocab)


def _latent(base: str, heads: str) -> tuple[Row, ...]:
    return (
        ("attn_q_a.weight", base, (7168, 1536)),
        ("attn_q_a_norm.weight", "F32", (1536,)),
        ("attn_q_b.weight", base, (1536, 128 * 192)),
        ("attn_kv_a_mqa.weight", base, (7168, 576)),
        ("attn_kv_a_norm.weight", "F32", (512,)),
        ("attn_k_b.weight", heads, (128, 512, 128)),
        ("attn_v_b.weight", heads, (512, 128, 128)),
        ("attn_output.weight", base, (128 * 128, 7168)),
    )


def _delta(embd: int, base: str) -> tuple[Row, ...]:
    return (
        ("attn_qkv.weight", base, (embd, 12_288)),
        ("attn_gate.weight", base, (embd, 8192)),
        ("ssm_conv1d.weight", "F32", (4, 12_288)),
        ("ssm_dt.bias", "F32", (64,)),
        ("ssm_a", "F32", (64,)),
        ("ssm_alpha.weight", base, (embd, 64)),
        ("ssm_beta.weight", base, (embd, 64)),
        ("ssm_norm.weight", "F32", (128,)),
        ("ssm_out.weight", base, (8192, embd)),
    )


def _attention(s: Shape, base: str, dear: str) -> tuple[Row, ...]:
    gated = s.architecture == "qwen35moe"
    n_heads, n_kv, dim = (32, 2, 256) if gated else (64, 4, 128)
    return (
        ("attn_q.weight", base, (s.embd, n_heads * dim * (2 if gated else 1))),
        ("attn_k.weight", base, (s.embd, n_kv * dim)),
        ("attn_v.weight", dear, (s.embd, n_kv * dim)),
        ("attn_output.weight", base, (n_heads * dim, s.embd)),
        ("attn_q_norm.weight", "F32", (dim,)),
        ("attn_k_norm.weight", "F32", (dim,)),
    )


def _dense(base: str, dear: str) -> tuple[Row, ...]:
    return (
        ("ffn_gate.weight", base, (7168, 18_432)),
        ("ffn_up.weight", base, (7168, 18_432)),
        ("ffn_down.weight", dear, (18_432, 7168)),
    )


def _experts(s: Shape, base: str, dear: str) -> Iterator[Row]:
    yield "ffn_gate_inp.weight", "F32", (s.embd, s.experts)
    yield "ffn_gate_exps.weight", base, (s.embd, s.expert_ff, s.experts)
    yield "ffn_up_exps.weight", base, (s.embd, s.expert_ff, s.experts)
    yield "ffn_down_exps.weight", dear, (s.expert_ff, s.embd, s.experts)
    if s.architecture == "qwen3moe":
        return
    if s.architecture == "deepseek2":
        yield "exp_probs_b.bias", "F32", (s.experts,)
    else:
        yield "ffn_gate_inp_shexp.weight", "F32", (s.embd,)
    yield "ffn_gate_shexp.weight", base, (s.embd, s.expert_ff)
    yield "ffn_up_shexp.weight", base, (s.embd, s.expert_ff)
    yield "ffn_down_shexp.weight", dear, (s.expert_ff, s.embd)


def _metadata(kind: Kind, s: Shape) -> dict[str, Any]:
    common: dict[str, Any] = {
        "block_count": s.layers,
        "context_length": 131_072,
        "embedding_length": s.embd,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "expert_count": s.experts,
        "expert_used_count": USED,
        "expert_feed_forward_length": s.expert_ff,
    }
    own = common | _OWN[kind]
    tokens = byte_alphabet() + [f"t{i}" for i in range(s.vocab - 256)]
    return {
        "general.architecture": s.architecture,
        "general.name": kind,
        **{f"{s.architecture}.{key}": value for key, value in own.items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": array_of(types.STRING, tokens),
        "tokenizer.ggml.token_type": array_of(types.INT32, [1] * s.vocab),
        "tokenizer.ggml.merges": array_of(types.STRING, ["t e"]),
    }


_OWN: dict[Kind, dict[str, Any]] = {
    "qwen3.5-122b": {
        "attention.head_count": 32,
        "attention.head_count_kv": 2,
        "attention.key_length": 256,
        "attention.value_length": 256,
        "rope.freq_base": 1e7,
        "rope.dimension_count": 64,
        "rope.dimension_sections": array_of(types.INT32, [11, 11, 10, 0]),
        "full_attention_interval": 4,
        "expert_shared_feed_forward_length": 1024,
        "ssm.conv_kernel": 4,
        "ssm.state_size": 128,
        "ssm.group_count": 16,
        "ssm.time_step_rank": 64,
        "ssm.inner_size": 8192,
    },
    "qwen3-235b": {
        "attention.head_count": 64,
        "attention.head_count_kv": 4,
        "attention.key_length": 128,
        "attention.value_length": 128,
        "rope.freq_base": 1e6,
        "feed_forward_length": 12_288,
    },
    "deepseek-r1": {
        "attention.head_count": 128,
        "attention.head_count_kv": 1,
        "attention.q_lora_rank": 1536,
        "attention.kv_lora_rank": 512,
        "attention.key_length": 576,
        "attention.value_length": 512,
        "attention.key_length_mla": 192,
        "attention.value_length_mla": 128,
        "feed_forward_length": 18_432,
        "vocab_size": 129_280,
        "leading_dense_block_count": 3,
        "expert_shared_count": 1,
        "expert_gating_func": 2,
        "expert_group_count": 8,
        "expert_group_used_count": 4,
        "expert_weights_scale": 2.5,
        "expert_weights_norm": True,
        "rope.freq_base": 1e4,
        "rope.dimension_count": 64,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 40.0,
        "rope.scaling.original_context_length": 4096,
        "rope.scaling.yarn_log_multiplier": 0.0707,
    },
}
