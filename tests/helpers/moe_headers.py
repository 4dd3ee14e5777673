"""Headers of models with mixtures of experts, for tests of their families."""

from __future__ import annotations

from typing import Any

from tests.helpers.headers import File, Tensor

E, HEADS, KV, DIM, FF, EXPERTS, EXPERT_FF = 32, 4, 2, 8, 48, 6, 24

COMMON = {
    "block_count": 2,
    "context_length": 128,
    "embedding_length": E,
    "feed_forward_length": FF,
    "attention.head_count": HEADS,
    "attention.head_count_kv": KV,
    "attention.key_length": DIM,
    "attention.value_length": DIM,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "vocab_size": 10,
    "expert_count": EXPERTS,
    "expert_used_count": 2,
    "expert_feed_forward_length": EXPERT_FF,
}
ATTENTION = {"attn_norm": (E,), "attn_q": (E, HEADS * DIM), "attn_k": (E, KV * DIM), "attn_v": (E, KV * DIM)}
ATTENTION |= {"attn_output": (HEADS * DIM, E)}
DENSE = {"ffn_gate": (E, FF), "ffn_up": (E, FF), "ffn_down": (FF, E)}
ROUTED = {
    "ffn_gate_inp": (E, EXPERTS),
    "ffn_gate_exps": (E, EXPERT_FF, EXPERTS),
    "ffn_up_exps": (E, EXPERT_FF, EXPERTS),
    "ffn_down_exps": (EXPERT_FF, E, EXPERTS),
}


def shared(width: int) -> dict[str, tuple[int, ...]]:
    """Tensors of a shared expert."""
    return {"ffn_gate_shexp": (E, width), "ffn_up_shexp": (E, width), "ffn_down_shexp": (width, E)}


def header(architecture: str, blocks: list[dict[str, tuple[int, ...]]], **changes: Any) -> File:
    """A model whose blocks hold attention and the named tensors; `changes` by key (dots as __); None removes a key.

    A tensor's name ends in `.bias` or gets `.weight`.
    """
    metadata = COMMON | {key.replace("__", "."): value for key, value in changes.items()}
    tensors = {"token_embd.weight": Tensor((E, 10)), "output_norm.weight": Tensor((E,)), "output.weight": Tensor((E, 10))}
    for i, block in enumerate(blocks):
        for name, shape in (ATTENTION | block).items():
            tensors[f"blk.{i}.{name}" if name.endswith(".bias") else f"blk.{i}.{name}.weight"] = Tensor(shape)
    known = {f"{architecture}.{key}": value for key, value in metadata.items() if value is not None}
    return File({"general.architecture": architecture, **known}, tensors)
