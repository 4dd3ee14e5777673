"""Small models with latent attention and dense feed-forward parts, of any shape and in both layouts of kv_b."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.gguf import types
from engine.quants.quantise import quantise_q8_0
from tests.helpers.gguf_builder import Tensor, build_gguf, tiny_metadata
from tests.helpers.headers import File
from tests.helpers.headers import Tensor as HeaderTensor

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Shape:
    """Of a model; q_rank 0: queries come straight from the stream."""

    n_heads: int = 4
    rank: int = 32
    nope: int = 16
    n_rot: int = 8
    v_dim: int = 16
    q_rank: int = 0
    n_embd: int = 64
    n_ff: int = 96
    n_layers: int = 2
    n_ctx: int = 2048
    n_nextn: int = 0


def latent_metadata(shape: Shape, *, split: bool, architecture: str = "deepseek2") -> dict[str, Any]:
    """The header of a deepseek2 file; split: of the layout with attn_k_b and attn_v_b."""
    plain = tiny_metadata(
        n_layers=shape.n_layers + shape.n_nextn,
        n_embd=shape.n_embd,
        n_heads=shape.n_heads,
        n_kv_heads=1 if split else shape.n_heads,
        n_ff=shape.n_ff,
        n_ctx=shape.n_ctx,
    )
    metadata = {key.replace("llama.", f"{architecture}."): value for key, value in plain.items()}
    metadata |= {"general.architecture": architecture}
    sizes = {
        "attention.kv_lora_rank": shape.rank,
        "rope.dimension_count": shape.n_rot,
        "leading_dense_block_count": shape.n_layers,
    }
    head_dim = shape.nope + shape.n_rot
    if split:
        sizes |= {"attention.key_length_mla": head_dim, "attention.value_length_mla": shape.v_dim}
        sizes |= {"attention.key_length": shape.rank + shape.n_rot, "attention.value_length": shape.rank}
    else:
        sizes |= {"attention.key_length": head_dim, "attention.value_length": shape.v_dim}
    if shape.q_rank:
        sizes["attention.q_lora_rank"] = shape.q_rank
    if shape.n_nextn:
        sizes["nextn_predict_layers"] = shape.n_nextn
    return metadata | {f"{architecture}.{key}": value for key, value in sizes.items()}


def latent_header(shape: Shape = Shape(), *, split: bool = True, **changes: Any) -> File:
    """A header without a file; changes: keys below deepseek2 with __ for the dots, None removes one."""
    metadata = latent_metadata(shape, split=split)
    for key, value in changes.items():
        name = "deepseek2." + key.replace("__", ".")
        metadata = {known: old for known, old in metadata.items() if known != name} | ({} if value is None else {name: value})
    embd, heads, head_dim, n_vocab = shape.n_embd, shape.n_heads, shape.nope + shape.n_rot, metadata["deepseek2.vocab_size"]
    tensors: dict[str, tuple[int, ...]] = {"token_embd.weight": (embd, n_vocab), "output_norm.weight": (embd,)}
    block: dict[str, tuple[int, ...]] = {
        "attn_norm": (embd,),
        "ffn_norm": (embd,),
        "attn_kv_a_norm": (shape.rank,),
        "attn_kv_a_mqa": (embd, shape.rank + shape.n_rot),
        "attn_output": (heads * shape.v_dim, embd),
        "ffn_gate": (embd, shape.n_ff),
        "ffn_up": (embd, shape.n_ff),
        "ffn_down": (shape.n_ff, embd),
    }
    if shape.q_rank:
        block |= {"attn_q_a": (embd, shape.q_rank), "attn_q_a_norm": (shape.q_rank,)}
        block["attn_q_b"] = (shape.q_rank, heads * head_dim)
    else:
        block["attn_q"] = (embd, heads * head_dim)
    if split:
        block |= {"attn_k_b": (shape.nope, shape.rank, heads), "attn_v_b": (shape.rank, shape.v_dim, heads)}
    else:
        block["attn_kv_b"] = (shape.rank, heads * (shape.nope + shape.v_dim))
    for i in range(shape.n_layers):
        tensors |= {f"blk.{i}.{name}.weight": dims for name, dims in block.items()}
    return File(metadata, {name: HeaderTensor(dims) for name, dims in tensors.items()})


def write_latent_model(path: Path, shape: Shape = Shape(), *, split: bool = True, quant: str = "F32", seed: int = 1) -> Path:
    """The same weights in either layout; quant F32, F16 or Q8_0 (where rows are whole blocks)."""
    rng = np.random.default_rng(seed)
    tensors: list[Tensor] = []

    def put(name: str, values: F32, quant: str) -> None:
        if quant == "Q8_0" and values.shape[-1] % 32 == 0:
            raw, kind = quantise_q8_0(values).tobytes(), "Q8_0"
        else:
            kind = "F16" if quant == "F16" else "F32"
            raw = values.astype(np.float16 if kind == "F16" else np.float32).tobytes()
        tensors.append((name, tuple(reversed(values.shape)), types.TYPE_IDS[kind], raw))

    def matrix(name: str, *dims: int) -> None:
        put(name, random(*dims), quant)

    def random(*dims: int) -> F32:
        return (rng.standard_normal(dims) * 1.5 * dims[-1] ** -0.5).astype(np.float32)

    def vector(name: str, n: int) -> None:
        put(name, rng.uniform(0.5, 1.5, n).astype(np.float32), "F32")

    metadata = latent_metadata(shape, split=split)
    n_vocab, heads, head_dim = metadata["deepseek2.vocab_size"], shape.n_heads, shape.nope + shape.n_rot
    matrix("token_embd.weight", n_vocab, shape.n_embd)
    matrix("output.weight", n_vocab, shape.n_embd)
    vector("output_norm.weight", shape.n_embd)
    for i in range(shape.n_layers):
        at = f"blk.{i}."
        vector(at + "attn_norm.weight", shape.n_embd)
        vector(at + "ffn_norm.weight", shape.n_embd)
        vector(at + "attn_kv_a_norm.weight", shape.rank)
        matrix(at + "attn_kv_a_mqa.weight", shape.rank + shape.n_rot, shape.n_embd)
        if shape.q_rank:
            matrix(at + "attn_q_a.weight", shape.q_rank, shape.n_embd)
            vector(at + "attn_q_a_norm.weight", shape.q_rank)
            matrix(at + "attn_q_b.weight", heads * head_dim, shape.q_rank)
        else:
            matrix(at + "attn_q.weight", heads * head_dim, shape.n_embd)
        kv_b = random(heads, shape.nope + shape.v_dim, shape.rank)
        if split:
            put(at + "attn_k_b.weight", np.ascontiguousarray(kv_b[:, : shape.nope].transpose(0, 2, 1)), quant)
            put(at + "attn_v_b.weight", np.ascontiguousarray(kv_b[:, shape.nope :]), quant)
        else:
            put(at + "attn_kv_b.weight", kv_b.reshape(-1, shape.rank), quant)
        matrix(at + "attn_output.weight", shape.n_embd, heads * shape.v_dim)
        matrix(at + "ffn_gate.weight", shape.n_ff, shape.n_embd)
        matrix(at + "ffn_up.weight", shape.n_ff, shape.n_embd)
        matrix(at + "ffn_down.weight", shape.n_embd, shape.n_ff)
    path.write_bytes(build_gguf(metadata, tensors))
    return path
