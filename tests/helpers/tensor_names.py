"""Names of the tensors of well-known models, for tests of rules about names: no weights, no shapes."""

from __future__ import annotations

_EXPERTS = ("ffn_gate_inp.weight", "ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight")
_DENSE = ("ffn_gate.weight", "ffn_up.weight", "ffn_down.weight")
_SHARED = ("ffn_gate_shexp.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight")
_GQA = ("attn_norm.weight", "attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight", "ffn_norm.weight")
_MLA = (
    *("attn_norm.weight", "attn_q_a.weight", "attn_q_a_norm.weight", "attn_q_b.weight", "attn_kv_a_mqa.weight"),
    *("attn_kv_a_norm.weight", "attn_k_b.weight", "attn_v_b.weight", "attn_output.weight", "ffn_norm.weight"),
)


def deepseek(n_layers: int = 61, n_dense: int = 3) -> tuple[str, ...]:
    """DeepSeek V3 and R1: the first layers are dense, the others have routed experts and a shared one."""
    moe = (*_MLA, *_EXPERTS, "exp_probs_b.bias", *_SHARED)
    return _model([(*_MLA, *_DENSE) if i < n_dense else moe for i in range(n_layers)])


def mixture(n_layers: int) -> tuple[str, ...]:
    """Experts in every layer, none shared: Qwen3-30B-A3B (48 layers), Qwen3-235B-A22B (94), gpt-oss-120b (36)."""
    return _model([(*_GQA, *_EXPERTS)] * n_layers)


def alternating(n_layers: int = 48) -> tuple[str, ...]:
    """Llama 4 Maverick: experts in every second layer, with a shared one."""
    return _model([(*_GQA, *_EXPERTS, *_SHARED) if i % 2 else (*_GQA, *_DENSE) for i in range(n_layers)])


def dense(n_layers: int) -> tuple[str, ...]:
    """A dense model: Llama 3 70B (80 layers), Qwen3-32B (64)."""
    return _model([(*_GQA, *_DENSE)] * n_layers)


def _model(layers: list[tuple[str, ...]]) -> tuple[str, ...]:
    names = [f"blk.{i}.{part}" for i, parts in enumerate(layers) for part in parts]
    return ("token_embd.weight", *names, "output_norm.weight", "output.weight")
