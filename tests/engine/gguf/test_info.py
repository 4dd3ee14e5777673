"""Names of tensors and the units they belong to."""

from __future__ import annotations

import pytest

from engine.gguf.info import unit_of


@pytest.mark.parametrize(
    ("name", "architecture", "unit"),
    [
        ("token_embd.weight", "llama", "embed"),
        ("rope_freqs.weight", "llama", "embed"),
        ("output_norm.weight", "llama", "head"),
        ("output.weight", "llama", "head"),
        ("blk.0.attn_norm.weight", "llama", "mixer.0"),
        ("blk.12.attn_output.weight", "llama", "mixer.12"),
        ("blk.3.ffn_norm.weight", "llama", "ffn.3"),
        ("blk.3.ffn_gate_inp.weight", "llama", "ffn.3"),
        ("blk.3.ffn_gate_exps.weight", "qwen3moe", "experts.3"),
        ("blk.3.ffn_down_exps.bias", "gpt-oss", "experts.3"),
        ("blk.3.ffn_gate_shexp.weight", "qwen2moe", "shared.3"),
        ("blk.3.ffn_gate_inp_shexp.weight", "qwen2moe", "shared.3"),
        ("blk.3.exp_probs_b.bias", "deepseek2", "ffn.3"),
        ("blk.3.post_attention_norm.weight", "gemma3", "mixer.3"),
        ("blk.3.post_attention_norm.weight", "qwen35", "ffn.3"),
        ("blk.3.ssm_conv1d.weight", "qwen35", "mixer.3"),
    ],
)
def test_unit_of(name: str, architecture: str, unit: str) -> None:
    assert unit_of(name, architecture) == unit
