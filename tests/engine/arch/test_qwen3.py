"""The qwen3 family, dense and with experts: what it reads, what it assumes, and the sentence for each file that it refuses."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from engine.arch.registry import build_spec
from engine.arch.spec import DenseFfn, MoeFfn
from engine.errors import GgufError, UnsupportedModel
from engine.graph.rotation import rope_frequencies
from tests.helpers.headers import File, Tensor

ATTENTION = {
    "attn_norm": (32,),
    "attn_q": (32, 64),
    "attn_k": (32, 32),
    "attn_v": (32, 32),
    "attn_output": (64, 32),
    "attn_q_norm": (16,),
    "attn_k_norm": (16,),
    "ffn_norm": (32,),
}
DENSE = {"ffn_gate": (32, 48), "ffn_up": (32, 48), "ffn_down": (48, 32)}
MOE = {
    "ffn_gate_inp": (32, 6),
    "ffn_gate_exps": (32, 24, 6),
    "ffn_up_exps": (32, 24, 6),
    "ffn_down_exps": (24, 32, 6),
}
MOE_KEYS = {"expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 24}
YARN = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}


def qwen3(architecture: str = "qwen3", **changes: Any) -> File:
    """A tied model of 2 layers, 4 heads over 2 KV heads of 16, 32 wide; `changes` by key (dots as __); None removes a key."""
    metadata: dict[str, Any] = {
        "block_count": 2,
        "context_length": 128,
        "embedding_length": 32,
        "feed_forward_length": 48,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 16,
        "attention.value_length": 16,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "vocab_size": 10,
    }
    moe = architecture == "qwen3moe"
    metadata |= MOE_KEYS if moe else {}
    metadata |= {key.replace("__", "."): value for key, value in changes.items()}
    tensors = {"token_embd.weight": Tensor((32, 10)), "output_norm.weight": Tensor((32,))}
    for i in range(2):
        tensors |= {f"blk.{i}.{name}.weight": Tensor(shape) for name, shape in (ATTENTION | (MOE if moe else DENSE)).items()}
    known = {f"{architecture}.{key}": value for key, value in metadata.items() if value is not None}
    return File({"general.architecture": architecture, **known}, tensors)


def test_a_dense_file() -> None:
    spec = build_spec(qwen3())
    mixer, ffn = spec.blocks[1].mixer, spec.blocks[1].ffn
    assert (mixer.n_heads, mixer.n_kv_heads, mixer.head_dim, mixer.v_dim, mixer.scale) == (4, 2, 16, 16, 0.25)
    assert mixer.q_norm is not None and mixer.k_norm is not None
    assert (mixer.q_norm.weight, mixer.k_norm.weight) == ("blk.1.attn_q_norm.weight", "blk.1.attn_k_norm.weight")
    assert (mixer.rope.kind, mixer.rope.n_rot, mixer.rope.yarn) == ("neox", 16, None)
    assert isinstance(ffn, DenseFfn)
    assert spec.head.weight == "token_embd.weight"


def test_a_head_of_its_own() -> None:
    file = qwen3()
    file.tensors["output.weight"] = Tensor((32, 10))
    assert build_spec(file).head.weight == "output.weight"


def test_a_file_with_experts() -> None:
    ffn = build_spec(qwen3("qwen3moe")).blocks[0].ffn
    assert isinstance(ffn, MoeFfn)
    assert (ffn.n_experts, ffn.n_used, ffn.routing.gating, ffn.routing.norm_weights) == (6, 2, "softmax", True)
    assert (ffn.router.n_out, ffn.gate.n_out, ffn.down.n_in, ffn.down.n_out) == (6, 24, 24, 32)
    assert ffn.gate.weight == "blk.0.ffn_gate_exps.weight"


def test_yarn() -> None:
    rope = build_spec(qwen3(**YARN, rope__scaling__original_context_length=32)).blocks[0].mixer.rope
    assert rope.yarn is not None
    assert (rope.yarn.factor, rope.yarn.original_context, rope.yarn.beta_fast, rope.yarn.beta_slow) == (4.0, 32, 32.0, 1.0)
    assert rope.freq_scale == 1.0
    assert rope.attn_factor == pytest.approx(0.1 * math.log(4) + 1)
    assert rope.yarn.rounded


def test_yarn_whose_ramp_does_not_end_at_whole_pairs() -> None:
    found = build_spec(qwen3(**YARN, rope__scaling__original_context_length=64, rope__scaling__yarn_truncate=False))
    rope = found.blocks[0].mixer.rope
    assert rope.yarn is not None and not rope.yarn.rounded
    rounded = replace(rope, yarn=replace(rope.yarn, rounded=True))
    ratio = rope_frequencies(rope, None) / rope_frequencies(rounded, None)
    assert (ratio != 1).any() and ratio[0] == 1


@pytest.mark.parametrize(
    ("changes", "attn_factor"),
    [
        ({"rope__scaling__attn_factor": 2.0}, 2 * (0.1 * math.log(4) + 1)),
        ({"rope__scaling__yarn_log_multiplier": 1.0}, 1.0),
        ({"rope__scaling__yarn_log_multiplier": 0.5}, (0.1 * math.log(4) + 1) / (0.05 * math.log(4) + 1)),
        ({"rope__scaling__factor": 1.0}, 1.0),
    ],
)
def test_what_yarn_multiplies_with(changes: dict[str, Any], attn_factor: float) -> None:
    assert build_spec(qwen3(**{**YARN, **changes})).blocks[0].mixer.rope.attn_factor == pytest.approx(attn_factor)


def test_yarn_stretches_the_context_of_the_file_where_no_other_is_named() -> None:
    yarn = build_spec(qwen3(**YARN)).blocks[0].mixer.rope.yarn
    assert yarn is not None and yarn.original_context == 128


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"expert_count": None}, "qwen3moe.expert_count is missing"),
        ({"expert_count": 0}, "qwen3moe.expert_count is 0"),
        ({"expert_used_count": 7}, "qwen3moe.expert_used_count is 7, it must lie between 1 and 6"),
        (
            {"expert_feed_forward_length": 25},
            r"ffn_gate_exps.weight has shape \[32, 24, 6\], the metadata asks for \[32, 25, 6\]",
        ),
        ({"expert_count": 5}, "ffn_gate_inp.weight has shape"),
        ({"attention__key_length": 8}, "attn_q.weight has shape"),
        ({**YARN, "rope__freq_base": 1.0}, "qwen3moe.rope.freq_base is 1, it must lie between 1.001"),
    ],
)
def test_contradictions_name_the_key(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(GgufError, match=words):
        build_spec(qwen3("qwen3moe", **changes))


def test_a_missing_head_norm() -> None:
    file = qwen3()
    del file.tensors["blk.1.attn_k_norm.weight"]
    with pytest.raises(GgufError, match=r"blk\.1\.attn_k_norm\.weight is missing"):
        build_spec(file)


@pytest.mark.parametrize(
    "changes",
    [{"rope__scaling__type": "longrope"}, {**YARN, "rope__scaling__yarn_ext_factor": 0.5}],
    ids=["longrope", "half yarn"],
)
def test_what_is_not_run_is_said(changes: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModel, match=r"qwen3\.rope\.scaling"):
        build_spec(qwen3(**changes))
