"""Headers of published models in front of a hole: all of their tensors, matrices in Q8_0."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

from engine.gguf import types
from engine.quants.formats import BY_NAME
from tests.helpers.gguf_builder import CHATML_TEMPLATE, array_of, assemble, byte_alphabet, pair, tensor_record
from tests.helpers.published_models import MODELS, Published

ALIGNMENT = 32
Shape = tuple[int, ...]


def published_model(name: str, folder: Path) -> Path:
    """The header in a folder, written where it is not there yet."""
    path = folder / f"{name}.gguf"
    if path.exists():
        return path
    records, at = [], 0
    for tensor, shape in _tensors(MODELS[name]):
        form = BY_NAME["F32" if len(shape) == 1 or "gate_inp" in tensor or "conv1d" in tensor or ".bias" in tensor else "Q8_0"]
        records.append(tensor_record(tensor, shape, types.TYPE_IDS[form.name], at))
        at += -(-form.row_bytes(shape[0]) * prod(shape[1:]) // ALIGNMENT) * ALIGNMENT
    head = assemble((pair(key, value) for key, value in _metadata(name).items()), records, b"", ALIGNMENT)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + at)
    return path


def _metadata(name: str) -> dict[str, Any]:
    model = MODELS[name]
    tokens = byte_alphabet() + [f"t{i}" for i in range(model.n_vocab - 256)]
    spm = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": array_of(types.FLOAT32, [0.0] * model.n_vocab)}
    bpe = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": model.pre}
    return {
        "general.architecture": model.architecture,
        "general.name": name,
        **{f"{model.architecture}.{key}": value for key, value in model.keys.items()},
        **(bpe | {"tokenizer.ggml.merges": array_of(types.STRING, ["t 1"])} if model.pre else spm),
        "tokenizer.ggml.tokens": array_of(types.STRING, tokens),
        "tokenizer.ggml.token_type": array_of(types.INT32, [1] * model.n_vocab),
        "tokenizer.chat_template": CHATML_TEMPLATE,
    }


def _tensors(model: Published) -> Iterator[tuple[str, Shape]]:
    keys, traits = model.keys, model.traits
    embd = keys["embedding_length"]
    yield "token_embd.weight", (embd, model.n_vocab)
    yield "output_norm.weight", (embd,)
    if "tied" not in traits:
        yield "output.weight", (embd, model.n_vocab)
    for i in range(keys["block_count"]):
        norms = ["attn_norm", "post_attention_norm" if "post_attention_norm" in traits else "ffn_norm"]
        norms += ["post_attention_norm", "post_ffw_norm"] if "post_norms" in traits else []
        parts = {f"{norm}.weight": (embd,) for norm in norms} | _mixer(model, i) | _ffn(model, i)
        if i >= keys["block_count"] - keys.get("nextn_predict_layers", 0):
            parts |= {"nextn.eh_proj.weight": (2 * embd, embd)}
            parts |= {f"nextn.{norm}.weight": (embd,) for norm in ("enorm", "hnorm", "shared_head_norm")}
            if "nextn_words" in traits:
                parts |= {f"nextn.{name}.weight": (embd, model.n_vocab) for name in ("embed_tokens", "shared_head_head")}
        for name, shape in parts.items():
            yield f"blk.{i}.{name}", shape


def _mixer(model: Published, i: int) -> dict[str, Shape]:
    if "latent" in model.traits:
        return _latent_mixer(model.keys)
    if "delta" in model.traits and (i + 1) % 4:
        return _delta_mixer(model)
    keys, traits = model.keys, model.traits
    embd, dim = keys["embedding_length"], keys["attention.key_length"]
    q, kv = keys["attention.head_count"] * dim, keys["attention.head_count_kv"] * dim
    parts: dict[str, Shape] = {
        "attn_q.weight": (embd, 2 * q if "gated" in traits else q),
        "attn_k.weight": (embd, kv),
        "attn_v.weight": (embd, kv),
        "attn_output.weight": (q, embd),
    }
    if "bias" in traits:
        parts |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
    if "all_biases" in traits:
        parts["attn_output.bias"] = (embd,)
    if "sinks" in traits:
        parts["attn_sinks.weight"] = (keys["attention.head_count"],)
    if "qk_norm" in traits:
        parts |= {"attn_q_norm.weight": (dim,), "attn_k_norm.weight": (dim,)}
    if "whole_norm" in traits:
        parts |= {"attn_q_norm.weight": (q,), "attn_k_norm.weight": (kv,)}
    return parts


def _latent_mixer(keys: dict[str, Any]) -> dict[str, Shape]:
    embd, heads, rank, rot = keys["embedding_length"], keys["attention.head_count"], keys["attention.kv_lora_rank"], 64
    dim, v_dim, q_rank = keys["attention.key_length_mla"], keys["attention.value_length_mla"], keys.get("attention.q_lora_rank")
    low: dict[str, Shape] = {"attn_q_a.weight": (embd, q_rank), "attn_q_a_norm.weight": (q_rank,)} if q_rank else {}
    return low | {
        "attn_q_b.weight" if q_rank else "attn_q.weight": (q_rank or embd, heads * dim),
        "attn_kv_a_mqa.weight": (embd, rank + rot),
        "attn_kv_a_norm.weight": (rank,),
        "attn_k_b.weight": (dim - rot, rank, heads),
        "attn_v_b.weight": (rank, v_dim, heads),
        "attn_output.weight": (heads * v_dim, embd),
    }


def _delta_mixer(model: Published) -> dict[str, Shape]:
    keys = model.keys
    embd, inner, n_v, dim = keys["embedding_length"], keys["ssm.inner_size"], keys["ssm.time_step_rank"], keys["ssm.state_size"]
    channels = 2 * keys["ssm.group_count"] * dim + inner
    apart: dict[str, Shape] = {"ssm_alpha.weight": (embd, n_v), "ssm_beta.weight": (embd, n_v)}
    return ({"ssm_ba.weight": (embd, 2 * n_v)} if "paired" in model.traits else apart) | {
        "attn_qkv.weight": (embd, channels),
        "attn_gate.weight": (embd, inner),
        "ssm_conv1d.weight": (keys["ssm.conv_kernel"], channels),
        "ssm_dt.bias": (n_v,),
        "ssm_a": (n_v,),
        "ssm_norm.weight": (dim,),
        "ssm_out.weight": (inner, embd),
    }


def _ffn(model: Published, i: int) -> dict[str, Shape]:
    keys, traits = model.keys, model.traits
    embd, n = keys["embedding_length"], keys.get("expert_count", 0)
    if not n or i < keys.get("leading_dense_block_count", 0):
        ff = keys["feed_forward_length"]
        return {"ffn_gate.weight": (embd, ff), "ffn_up.weight": (embd, ff), "ffn_down.weight": (ff, embd)}
    ff = keys["expert_feed_forward_length"]
    shared = keys.get("expert_shared_count", 0) * ff or keys.get("expert_shared_feed_forward_length", 0)
    parts: dict[str, Shape] = {
        "ffn_gate_inp.weight": (embd, n),
        "ffn_gate_exps.weight": (embd, ff, n),
        "ffn_up_exps.weight": (embd, ff, n),
        "ffn_down_exps.weight": (ff, embd, n),
    }
    if shared:
        parts |= {"ffn_gate_shexp.weight": (embd, shared), "ffn_up_shexp.weight": (embd, shared)}
        parts["ffn_down_shexp.weight"] = (shared, embd)
    if "shared_gate" in traits:
        parts["ffn_gate_inp_shexp.weight"] = (embd,)
    if "selection_bias" in traits:
        parts["exp_probs_b.bias"] = (n,)
    if "all_biases" in traits:
        parts |= {"ffn_gate_inp.bias": (n,), "ffn_gate_exps.bias": (ff, n), "ffn_up_exps.bias": (ff, n)}
        parts["ffn_down_exps.bias"] = (embd, n)
    return parts
