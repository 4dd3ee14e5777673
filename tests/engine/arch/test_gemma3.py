"""The gemma3 family: what it reads, what it assumes, and the sentence for each file that it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from engine.arch.registry import build_spec
from engine.arch.spec import DenseFfn
from engine.errors import GgufError
from tests.helpers.headers import File, Tensor

TENSORS = {
    "attn_norm": (32,),
    "attn_q": (32, 64),
    "attn_k": (32, 32),
    "attn_v": (32, 32),
    "attn_output": (64, 32),
    "attn_q_norm": (16,),
    "attn_k_norm": (16,),
    "post_attention_norm": (32,),
    "ffn_norm": (32,),
    "ffn_gate": (32, 48),
    "ffn_up": (32, 48),
    "ffn_down": (48, 32),
    "post_ffw_norm": (32,),
}


def gemma3(n_layers: int = 7, **changes: Any) -> File:
    """4 heads over 2 KV heads of 16, 32 wide, a window of 24; `changes` by key (dots as __); None removes a key."""
    metadata: dict[str, Any] = {
        "block_count": n_layers,
        "context_length": 4096,
        "embedding_length": 32,
        "feed_forward_length": 48,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 16,
        "attention.value_length": 16,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.sliding_window": 24,
        "rope.freq_base": 1e6,
        "rope.scaling.type": "linear",
        "rope.scaling.factor": 8.0,
        "vocab_size": 10,
    }
    metadata |= {key.replace("__", "."): value for key, value in changes.items()}
    tensors = {"token_embd.weight": Tensor((32, 10)), "output_norm.weight": Tensor((32,))}
    tensors |= {f"blk.{i}.{name}.weight": Tensor(shape) for i in range(n_layers) for name, shape in TENSORS.items()}
    known = {f"gemma3.{key}": value for key, value in metadata.items() if value is not None}
    return File({"general.architecture": "gemma3", **known}, tensors)


def test_a_file() -> None:
    spec = build_spec(gemma3())
    near, far = spec.blocks[4], spec.blocks[5]
    assert [one.mixer.window for one in spec.blocks] == [24] * 5 + [None, 24]
    assert (near.mixer.rope.freq_base, near.mixer.rope.freq_scale) == (10000.0, 1.0)
    assert (far.mixer.rope.freq_base, far.mixer.rope.freq_scale) == (1e6, 1 / 8)
    assert far.mixer.rope.kind == near.mixer.rope.kind == "neox"
    assert near.post_norm is not None and near.post_norm.weight == "blk.4.post_attention_norm.weight"
    assert near.ffn_post_norm is not None and near.ffn_post_norm.weight == "blk.4.post_ffw_norm.weight"
    assert near.mixer.q_norm is not None and near.mixer.k_norm is not None
    assert isinstance(near.ffn, DenseFfn) and near.ffn.act == "gelu_tanh"
    assert (near.mixer.scale, spec.embed_scale, spec.softcap) == (0.25, 32**0.5, 0.0)
    assert spec.head.weight == "token_embd.weight"


def test_other_bases_and_soft_caps_of_the_file() -> None:
    changes = {"rope__freq_base_swa": 500.0, "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0}
    spec = build_spec(gemma3(**changes))
    assert spec.blocks[0].mixer.rope.freq_base == 500.0
    assert (spec.softcap, spec.blocks[0].mixer.softcap) == (30.0, 50.0)


def test_the_scale_of_scores_is_that_of_the_heads_except_in_one_size() -> None:
    assert build_spec(gemma3(62)).blocks[0].mixer.scale == pytest.approx((32 / 4) ** -0.5)
    assert build_spec(gemma3(62, attention__scale=0.5)).blocks[0].mixer.scale == 0.5
    assert build_spec(gemma3(attention__scale=0.5)).blocks[0].mixer.scale == 0.5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"feed_forward_length": 40}, "ffn_gate.weight has shape"),
        ({"final_logit_softcapping": -1.0}, "final_logit_softcapping is -1"),
        ({"rope__freq_base_swa": 0.0}, "rope.freq_base_swa is 0"),
    ],
)
def test_contradictions_name_the_key(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(GgufError, match=words):
        build_spec(gemma3(**changes))


def test_post_norms_are_needed() -> None:
    file = gemma3()
    del file.tensors["blk.3.post_ffw_norm.weight"]
    with pytest.raises(GgufError, match=r"blk\.3\.post_ffw_norm\.weight is missing"):
        build_spec(file)
