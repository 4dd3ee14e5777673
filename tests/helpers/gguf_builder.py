"""Writes tiny GGUF files of any architecture and format in memory, for tests."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.gguf import types

Tensor = tuple[str, Sequence[int], int, bytes]
"""Name, shape (ne0 first), type id, data."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A metadata value with its stored type; `item_type` for arrays."""

    type_id: int
    value: Any
    item_type: int | None = None


def u32(value: int) -> Typed:
    """A u32 value."""
    return Typed(types.UINT32, value)


def f32(value: float) -> Typed:
    """An f32 value."""
    return Typed(types.FLOAT32, value)


def array_of(item_type: int, values: Sequence[Any]) -> Typed:
    """An array of the given item type."""
    return Typed(types.ARRAY, values, item_type)


def infer(value: Any) -> Typed:
    """The type that a Python value has in ordinary files: u32, i32, f32, bool, string, or an array of one of them."""
    match value:
        case Typed():
            return value
        case bool():
            return Typed(types.BOOL, value)
        case int():
            return Typed(types.UINT32 if value >= 0 else types.INT32, value)
        case float():
            return Typed(types.FLOAT32, value)
        case str() | bytes():
            return Typed(types.STRING, value)
        case _:
            items = list(value)
            return Typed(types.ARRAY, items, infer(items[0]).type_id if items else types.INT32)


def string(text: str | bytes) -> bytes:
    """A length-prefixed string."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def value_bytes(typed: Typed) -> bytes:
    """The stored form of a value, without its type."""
    if typed.type_id == types.STRING:
        return string(typed.value)
    if typed.type_id == types.ARRAY:
        assert typed.item_type is not None
        head = struct.pack("<IQ", typed.item_type, len(typed.value))
        return head + b"".join(value_bytes(Typed(typed.item_type, item)) for item in typed.value)
    return struct.pack("<" + types.STRUCT_CODES[typed.type_id], typed.value)


def pair(key: str | bytes, value: Any) -> bytes:
    """One stored key with its value."""
    typed = infer(value)
    return string(key) + struct.pack("<I", typed.type_id) + value_bytes(typed)


def tensor_record(name: str | bytes, shape: Sequence[int], type_id: int, offset: int) -> bytes:
    """One stored line of the tensor table."""
    dims = b"".join(struct.pack("<Q", n) for n in shape)
    return string(name) + struct.pack("<I", len(shape)) + dims + struct.pack("<IQ", type_id, offset)


def assemble(pairs: Iterable[bytes], records: Sequence[bytes], data: bytes, alignment: int = 32, version: int = 3) -> bytes:
    """A file of stored pairs, tensor records and data; no check at all."""
    stored = list(pairs)
    head = types.MAGIC + struct.pack("<IQQ", version, len(records), len(stored)) + b"".join(stored) + b"".join(records)
    return head + b"\0" * (-len(head) % alignment) + data


def build_gguf(metadata: Mapping[str, Any], tensors: Sequence[Tensor] = (), *, version: int = 3) -> bytes:
    """A valid file; the values' types are inferred unless given as `Typed`. `general.architecture` must be among the metadata."""
    alignment = infer(metadata["general.alignment"]).value if "general.alignment" in metadata else types.DEFAULT_ALIGNMENT
    records, data = [], b""
    for name, shape, type_id, raw in tensors:
        data += b"\0" * (-len(data) % alignment)
        records.append(tensor_record(name, shape, type_id, len(data)))
        data += raw
    return assemble((pair(k, v) for k, v in metadata.items()), records, data, alignment, version)


def tensor_bytes(shape: Sequence[int], type_id: int, rng: random.Random, scale: float = 0.05) -> bytes:
    """Random data of a tensor: normal numbers for F32 and F16, finite random blocks for Q8_0, Q4_0 and Q4_1."""
    row = types.TENSOR_TYPES[type_id]
    n = 1
    for dim in shape:
        n *= dim
    if row.name in ("F32", "F16"):
        code = "f" if row.name == "F32" else "e"
        return struct.pack(f"<{n}{code}", *(rng.gauss(0, scale) for _ in range(n)))
    n_scales = {"Q8_0": 1, "Q4_0": 1, "Q4_1": 2}[row.name]
    step = scale / 60 if row.name == "Q8_0" else scale / 4
    blocks = []
    for _ in range(n // row.block):
        scales = [step * (0.5 + rng.random()), -8 * step][:n_scales]
        blocks.append(struct.pack(f"<{n_scales}e", *scales) + rng.randbytes(row.block_bytes - 2 * n_scales))
    return b"".join(blocks)


def byte_alphabet() -> list[str]:
    """The 256 characters that stand for bytes in byte-level vocabularies, in byte order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    extra = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(extra)) for b in range(256)]


CHATML_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def tiny_metadata(
    *, n_layers: int = 2, n_embd: int = 64, n_heads: int = 4, n_kv_heads: int = 2, n_ff: int = 128, n_ctx: int = 256
) -> dict[str, Any]:
    """Metadata of a llama model with a byte-level vocabulary: 256 bytes, three control tokens, no merges but one."""
    tokens = [*byte_alphabet(), "he", "<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    return {
        "general.architecture": "llama",
        "general.name": "tiny",
        "llama.block_count": n_layers,
        "llama.context_length": n_ctx,
        "llama.embedding_length": n_embd,
        "llama.feed_forward_length": n_ff,
        "llama.attention.head_count": n_heads,
        "llama.attention.head_count_kv": n_kv_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": n_embd // n_heads,
        "llama.vocab_size": len(tokens),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": array_of(types.STRING, tokens),
        "tokenizer.ggml.token_type": array_of(types.INT32, [1] * 257 + [3] * 3),
        "tokenizer.ggml.merges": array_of(types.STRING, ["h e"]),
        "tokenizer.ggml.bos_token_id": 257,
        "tokenizer.ggml.eos_token_id": 258,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHATML_TEMPLATE,
    }


def tiny_llama(
    *,
    quant: str = "F16",
    seed: int = 1,
    tied: bool = True,
    n_layers: int = 2,
    n_embd: int = 64,
    n_ff: int = 128,
    template: str = CHATML_TEMPLATE,
) -> bytes:
    """A random llama model that loads and runs: 4 heads, 2 KV heads, 260 tokens, matrices of type `quant`."""
    metadata = tiny_metadata(n_layers=n_layers, n_embd=n_embd, n_ff=n_ff) | {"tokenizer.chat_template": template}
    n_vocab = metadata["llama.vocab_size"]
    rng = random.Random(seed)
    matrix = types.TYPE_IDS[quant]
    n_kv = n_embd // 2
    ones = struct.pack(f"<{n_embd}f", *[1.0] * n_embd)
    norm_shape = (n_embd,)

    def weight(name: str, n_in: int, n_out: int) -> Tensor:
        return (name, (n_in, n_out), matrix, tensor_bytes((n_in, n_out), matrix, rng, n_in**-0.5))

    tensors: list[Tensor] = [weight("token_embd.weight", n_embd, n_vocab), ("output_norm.weight", norm_shape, 0, ones)]
    for i in range(n_layers):
        tensors += [
            (f"blk.{i}.attn_norm.weight", norm_shape, 0, ones),
            weight(f"blk.{i}.attn_q.weight", n_embd, n_embd),
            weight(f"blk.{i}.attn_k.weight", n_embd, n_kv),
            weight(f"blk.{i}.attn_v.weight", n_embd, n_kv),
            weight(f"blk.{i}.attn_output.weight", n_embd, n_embd),
            (f"blk.{i}.ffn_norm.weight", norm_shape, 0, ones),
            weight(f"blk.{i}.ffn_gate.weight", n_embd, n_ff),
            weight(f"blk.{i}.ffn_up.weight", n_embd, n_ff),
            weight(f"blk.{i}.ffn_down.weight", n_ff, n_embd),
        ]
    if not tied:
        tensors.append(weight("output.weight", n_embd, n_vocab))
    return build_gguf(metadata, tensors)
