"""Models of the shape and size of real ones, for speed and memory: random blocks under sane scales, and a tokenizer that says it
is none, without which other engines refuse the file; or one of bytes and made-up words, for what answers text.

Embeddings are large, what is added to the residual stream small, router rows normal with a deviation of 0.05: so activations stay
near 1 and routing as diverse as in trained models. With plain random weights it collapses to a few experts and prefill looks
several times too fast. 5 GB take some seconds.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.gguf import types
from engine.gguf.types import TYPE_IDS
from engine.quants.formats import BY_NAME
from tests.helpers.gguf_builder import array_of, byte_alphabet, pair, string

ALIGN = 32
POOL_BYTES = 64 << 20
"""Random blocks of one format and scale, from which tensors are filled; far more than a cache holds."""
WRITE_BYTES = 32 << 20
WRITERS = 8
SCALES: dict[str, tuple[tuple[int, float], ...]] = {
    "Q4_K": ((0, 8e-5), (2, 6e-4)),
    "Q6_K": ((208, 1.5e-5),),
    "Q8_0": ((0, 2.7e-4),),
    "Q4_0": ((0, 4.3e-3),),
    "Q5_0": ((0, 2.2e-3),),
}
"""(byte, value) of the f16 scales in a block: a product with normed activations then has a deviation of about 1."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Dimensions of a model; experts 0: dense."""

    architecture: str
    layers: int
    embd: int
    ff: int
    heads: int
    kv_heads: int
    vocab: int
    experts: int = 0
    used: int = 0
    expert_ff: int = 0


SHAPES = {
    "qwen3-8b": Shape("qwen3", 36, 4096, 12288, 32, 8, 151936),
    "qwen3-1.7b": Shape("qwen3", 28, 2048, 6144, 16, 8, 151936),
    "qwen3-30b-a3b": Shape("qwen3moe", 48, 2048, 6144, 32, 4, 151936, 128, 8, 768),
    "deepseek-v2-lite": Shape("deepseek2", 27, 2048, 10944, 16, 1, 102400, 64, 6, 1408),
}
HEAD_DIM = 128
LATENT = {"rank": 512, "rope": 64, "nope": 128, "values": 128}

Row = tuple[str, str, tuple[int, ...]]
"""Name, format, shape with ne0 first."""


def write_synthetic(kind: str, path: Path, layers: int | None = None, *, words: bool = False) -> int:
    """Writes a model in Q4_K_M; the bytes of its tensors. layers: fewer than the real model has. words: with a tokenizer."""
    rows, places, at, head = _header(kind, layers, words=words)
    pools: dict[tuple[str, float], npt.NDArray[np.uint8]] = {}
    with path.open("wb") as file, ThreadPoolExecutor(min(WRITERS, os.cpu_count() or 1)) as threads:
        file.write(head)
        file.flush()
        jobs = []
        for index, ((name, fmt, _), (start, size)) in enumerate(zip(rows, places, strict=True)):
            if fmt == "F32":
                values = np.ones(size // 4, np.float32) if "norm" in name else _normal(index, size // 4)
                os.pwrite(file.fileno(), values.tobytes(), len(head) + start)
                continue
            key = fmt, _scale(name)
            if key not in pools:
                pools[key] = _pool(*key)
            block = BY_NAME[fmt].type_size
            piece = WRITE_BYTES // block * block
            for done in range(0, size, piece):
                at_byte, count = len(head) + start + done, min(piece, size - done)
                jobs.append(threads.submit(_fill, file.fileno(), pools[key], at_byte, count, block))
        for job in jobs:
            job.result()
        os.ftruncate(file.fileno(), len(head) + at)
    return sum(size for _, size in places)


def write_header(kind: str, path: Path, layers: int | None = None) -> Path:
    """Writes the header of the same model in front of a hole; its path."""
    _, _, nbytes, head = _header(kind, layers, words=False)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + nbytes)
    return path


def _header(kind: str, layers: int | None, *, words: bool) -> tuple[list[Row], list[tuple[int, int]], int, bytes]:
    """Tensors, (place, bytes) of each, bytes of all, and the bytes of the file before them."""
    shape = SHAPES[kind]
    n = layers or shape.layers
    rows = list(_rows(shape, n))
    metadata = _metadata(shape, n) | (_words(shape.vocab) if words else {})
    infos, at, places = [], 0, []
    for name, fmt, dims in rows:
        size = _nbytes(fmt, dims)
        infos.append(string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, TYPE_IDS[fmt], at))
        places.append((at, size))
        at += -(-size // ALIGN) * ALIGN
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(rows), len(metadata))
    head += b"".join(pair(key, value) for key, value in metadata.items()) + b"".join(infos)
    return rows, places, at, head + b"\0" * (-len(head) % ALIGN)


def _fill(fd: int, pool: npt.NDArray[np.uint8], at: int, count: int, block: int) -> None:
    """Blocks from a place in the pool that depends on where they go."""
    last = (len(pool) - count) // block
    start = (at * 2654435761 >> 7) % last * block
    os.pwrite(fd, memoryview(pool)[start : start + count], at)


def _pool(fmt: str, scale: float) -> npt.NDArray[np.uint8]:
    size = BY_NAME[fmt].type_size
    blocks = np.random.default_rng(len(fmt)).integers(0, 256, (POOL_BYTES // size, size), dtype=np.uint8)
    for offset, value in SCALES[fmt]:
        blocks[:, offset : offset + 2] = np.frombuffer(np.float16(value * scale).tobytes(), np.uint8)
    return blocks.reshape(-1)


def _normal(seed: int, n: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(n, np.float32) * np.float32(0.05)


def _scale(name: str) -> float:
    if name == "token_embd.weight":
        return 100.0
    return 0.1 if "attn_output" in name or "ffn_down" in name else 1.0


def _nbytes(fmt: str, dims: tuple[int, ...]) -> int:
    return int(BY_NAME[fmt].row_bytes(dims[0]) * np.prod(dims[1:], dtype=np.int64))


def _rows(s: Shape, layers: int) -> Iterator[Row]:
    """The tensors in file order: Q4_K, what Q4_K_M thinks dear in Q6_K."""
    yield "token_embd.weight", "Q4_K", (s.embd, s.vocab)
    for i in range(layers):
        dear = i < layers // 8 or i >= 7 * layers // 8 or (i - layers // 8) % 3 == 2
        at, high = f"blk.{i}.", "Q6_K" if dear else "Q4_K"
        yield at + "attn_norm.weight", "F32", (s.embd,)
        yield from _latent(s, at) if s.architecture == "deepseek2" else _attention(s, at, high)
        yield at + "ffn_norm.weight", "F32", (s.embd,)
        first_dense = s.architecture == "deepseek2" and i == 0
        yield from _experts(s, at, high, dear) if s.experts and not first_dense else _dense(s, at, high, dear)
    yield "output_norm.weight", "F32", (s.embd,)
    yield "output.weight", "Q6_K", (s.embd, s.vocab)


def _attention(s: Shape, at: str, high: str) -> Iterator[Row]:
    q, kv = s.heads * HEAD_DIM, s.kv_heads * HEAD_DIM
    yield at + "attn_q.weight", "Q4_K", (s.embd, q)
    yield at + "attn_k.weight", "Q4_K", (s.embd, kv)
    yield at + "attn_v.weight", high, (s.embd, kv)
    yield at + "attn_output.weight", "Q4_K", (q, s.embd)
    yield at + "attn_q_norm.weight", "F32", (HEAD_DIM,)
    yield at + "attn_k_norm.weight", "F32", (HEAD_DIM,)


def _latent(s: Shape, at: str) -> Iterator[Row]:
    rank, rope, nope, values = (LATENT[name] for name in ("rank", "rope", "nope", "values"))
    yield at + "attn_q.weight", "Q4_K", (s.embd, s.heads * (nope + rope))
    yield at + "attn_kv_a_mqa.weight", "Q4_K", (s.embd, rank + rope)
    yield at + "attn_kv_a_norm.weight", "F32", (rank,)
    yield at + "attn_k_b.weight", "Q8_0", (nope, rank, s.heads)
    yield at + "attn_v_b.weight", "Q8_0", (rank, values, s.heads)
    yield at + "attn_output.weight", "Q4_K", (s.heads * values, s.embd)


def _down(width: int, high: str, dear: bool) -> str:
    """Rows that are no whole blocks of 256 are of older formats."""
    return high if width % 256 == 0 else "Q8_0" if dear else "Q4_0"


def _dense(s: Shape, at: str, high: str, dear: bool) -> Iterator[Row]:
    yield at + "ffn_gate.weight", "Q4_K", (s.embd, s.ff)
    yield at + "ffn_up.weight", "Q4_K", (s.embd, s.ff)
    yield at + "ffn_down.weight", _down(s.ff, high, dear), (s.ff, s.embd)


def _experts(s: Shape, at: str, high: str, dear: bool) -> Iterator[Row]:
    yield at + "ffn_gate_inp.weight", "F32", (s.embd, s.experts)
    yield at + "ffn_gate_exps.weight", "Q4_K", (s.embd, s.expert_ff, s.experts)
    yield at + "ffn_up_exps.weight", "Q4_K", (s.embd, s.expert_ff, s.experts)
    yield at + "ffn_down_exps.weight", _down(s.expert_ff, high, dear), (s.expert_ff, s.embd, s.experts)
    if s.architecture == "deepseek2":
        width = 2 * s.expert_ff
        yield at + "ffn_gate_shexp.weight", "Q4_K", (s.embd, width)
        yield at + "ffn_up_shexp.weight", "Q4_K", (s.embd, width)
        yield at + "ffn_down_shexp.weight", _down(width, high, dear), (width, s.embd)


def _metadata(s: Shape, layers: int) -> dict[str, Any]:
    own: dict[str, Any] = {
        "block_count": layers,
        "context_length": 40960,
        "embedding_length": s.embd,
        "feed_forward_length": s.ff,
        "attention.head_count": s.heads,
        "attention.head_count_kv": s.kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6,
        "vocab_size": s.vocab,
    }
    if s.architecture == "deepseek2":
        own |= {
            "leading_dense_block_count": 1,
            "expert_shared_count": 2,
            "expert_gating_func": 1,
            "expert_weights_scale": 1.0,
            "expert_weights_norm": False,
            "attention.kv_lora_rank": LATENT["rank"],
            "attention.key_length": LATENT["rank"] + LATENT["rope"],
            "attention.value_length": LATENT["rank"],
            "attention.key_length_mla": LATENT["nope"] + LATENT["rope"],
            "attention.value_length_mla": LATENT["values"],
            "rope.dimension_count": LATENT["rope"],
            "rope.freq_base": 1e4,
        }
    else:
        own |= {"attention.key_length": HEAD_DIM, "attention.value_length": HEAD_DIM}
    if s.experts:
        own |= {"expert_count": s.experts, "expert_used_count": s.used, "expert_feed_forward_length": s.expert_ff}
    general: dict[str, Any] = {
        "general.architecture": s.architecture,
        "general.name": "synthetic",
        "tokenizer.ggml.model": "none",
    }
    return general | {f"{s.architecture}.{key}": value for key, value in own.items()}


def _words(n_vocab: int) -> dict[str, Any]:
    """A byte-level tokenizer: every byte, then words that no text is cut into."""
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": array_of(types.STRING, byte_alphabet() + [f"t{i}" for i in range(n_vocab - 256)]),
        "tokenizer.ggml.token_type": array_of(types.INT32, [1] * n_vocab),
        "tokenizer.ggml.merges": array_of(types.STRING, ["t e"]),
    }
