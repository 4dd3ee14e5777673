"""Small models of gated DeltaNet and gated attention, of any shape and layout."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.arch.spec import BlockSpec, DeltaNet, ModelSpec
from engine.gguf import types
from tests.helpers.gguf_builder import Tensor, array_of, build_gguf, tensor_bytes, tiny_metadata


@dataclass(frozen=True)
class Hybrid:
    """A shape of `write_hybrid`. recurrent: per block; joined, paired: see `engine.arch.spec.DeltaShape`."""

    recurrent: tuple[bool, ...] = (True, True, False)
    n_k: int = 2
    n_v: int = 4
    dim: int = 16
    n_taps: int = 4
    n_embd: int = 64
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 32
    n_ff: int = 48
    joined: bool = False
    paired: bool = False
    n_ctx: int = 1024


def hybrid_metadata(shape: Hybrid) -> dict[str, Any]:
    """The metadata of a qwen35 file of this shape."""
    tiny = tiny_metadata(
        n_layers=len(shape.recurrent),
        n_embd=shape.n_embd,
        n_heads=shape.n_heads,
        n_kv_heads=shape.n_kv_heads,
        n_ff=shape.n_ff,
        n_ctx=shape.n_ctx,
    )
    renamed = {key.replace("llama.", "qwen35."): value for key, value in tiny.items()}
    return renamed | {
        "general.architecture": "qwen35",
        "qwen35.attention.key_length": shape.head_dim,
        "qwen35.attention.value_length": shape.head_dim,
        "qwen35.rope.dimension_count": shape.head_dim // 4 * 2,
        "qwen35.rope.dimension_sections": array_of(types.INT32, [shape.head_dim // 4, 0, 0, 0]),
        "qwen35.attention.recurrent_layers": array_of(types.BOOL, shape.recurrent),
        "qwen35.ssm.conv_kernel": shape.n_taps,
        "qwen35.ssm.state_size": shape.dim,
        "qwen35.ssm.group_count": shape.n_k,
        "qwen35.ssm.time_step_rank": shape.n_v,
        "qwen35.ssm.inner_size": shape.n_v * shape.dim,
    }


def hybrid_tensors(shape: Hybrid, quant: str = "F32", seed: int = 1) -> list[Tensor]:
    """Random weights of this shape, matrices of type `quant`."""
    rng = random.Random(seed)
    matrix, n_embd = types.TYPE_IDS[quant], shape.n_embd
    inner, keys, channels = shape.n_v * shape.dim, shape.n_k * shape.dim, (2 * shape.n_k + shape.n_v) * shape.dim

    def vector(name: str, n: int, low: float, high: float) -> Tensor:
        return (name, (n,), 0, struct.pack(f"<{n}f", *(rng.uniform(low, high) for _ in range(n))))

    def weight(name: str, *dims: int) -> Tensor:
        return (f"{name}.weight", dims, matrix, tensor_bytes(dims, matrix, rng, 1.5 * dims[0] ** -0.5))

    def mixer(at: str, recurrent: bool) -> list[Tensor]:
        if not recurrent:
            n, n_kv = shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
            return [
                vector(f"{at}attn_q_norm.weight", shape.head_dim, 0.5, 1.5),
                vector(f"{at}attn_k_norm.weight", shape.head_dim, 0.5, 1.5),
                weight(f"{at}attn_q", n_embd, 2 * n),
                weight(f"{at}attn_k", n_embd, n_kv),
                weight(f"{at}attn_v", n_embd, n_kv),
                weight(f"{at}attn_output", n, n_embd),
            ]
        apart = [weight(f"{at}attn_qkv", n_embd, channels), weight(f"{at}attn_gate", n_embd, inner)]
        single = [weight(f"{at}ssm_beta", n_embd, shape.n_v), weight(f"{at}ssm_alpha", n_embd, shape.n_v)]
        taps = (shape.n_taps, channels)
        return [
            *([weight(f"{at}ssm_in", n_embd, 2 * keys + 2 * inner)] if shape.joined else apart),
            *([weight(f"{at}ssm_ba", n_embd, 2 * shape.n_v)] if shape.paired else single),
            (f"{at}ssm_conv1d.weight", taps, 0, tensor_bytes(taps, 0, rng, 0.5)),
            vector(f"{at}ssm_dt.bias", shape.n_v, -1.0, 1.0),
            vector(f"{at}ssm_a", shape.n_v, -1.0, -0.01),
            vector(f"{at}ssm_norm.weight", shape.dim, 0.5, 1.5),
            weight(f"{at}ssm_out", inner, n_embd),
        ]

    n_vocab = hybrid_metadata(shape)["qwen35.vocab_size"]
    tensors = [weight("token_embd", n_embd, n_vocab), vector("output_norm.weight", n_embd, 0.5, 1.5)]
    for i, recurrent in enumerate(shape.recurrent):
        at = f"blk.{i}."
        tensors += [
            vector(f"{at}attn_norm.weight", n_embd, 0.5, 1.5),
            *mixer(at, recurrent),
            vector(f"{at}post_attention_norm.weight", n_embd, 0.5, 1.5),
            weight(f"{at}ffn_gate", n_embd, shape.n_ff),
            weight(f"{at}ffn_up", n_embd, shape.n_ff),
            weight(f"{at}ffn_down", shape.n_ff, n_embd),
        ]
    return tensors


def write_hybrid(path: Path, shape: Hybrid, quant: str = "F32", seed: int = 1) -> Path:
    """A qwen35 file of this shape."""
    path.write_bytes(build_gguf(hybrid_metadata(shape), hybrid_tensors(shape, quant, seed)))
    return path


def grouped(spec: ModelSpec) -> ModelSpec:
    """The same model with value heads paired in groups, as qwen3next has them."""

    def change(block: BlockSpec) -> BlockSpec:
        if not isinstance(block.mixer, DeltaNet):
            return block
        return replace(block, mixer=replace(block.mixer, shape=replace(block.mixer.shape, tiled=False)))

    return replace(spec, blocks=tuple(change(block) for block in spec.blocks))
