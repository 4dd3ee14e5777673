"""The gpt-oss family: what it reads, what it assumes, and the sentence for each file that it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from engine.arch.cache_groups import groups_of, windows
from engine.arch.registry import build_spec
from engine.arch.spec import ClampedSwiglu, MoeFfn
from engine.errors import GgufError
from tests.helpers.headers import File, Tensor

TENSORS = {
    "attn_norm.weight": (32,),
    "attn_q.weight": (32, 64),
    "attn_q.bias": (64,),
    "attn_k.weight": (32, 32),
    "attn_k.bias": (32,),
    "attn_v.weight": (32, 32),
    "attn_v.bias": (32,),
    "attn_output.weight": (64, 32),
    "attn_output.bias": (32,),
    "attn_sinks.weight": (4,),
    "post_attention_norm.weight": (32,),
    "ffn_gate_inp.weight": (32, 6),
    "ffn_gate_inp.bias": (6,),
    "ffn_gate_exps.weight": (32, 24, 6),
    "ffn_gate_exps.bias": (24, 6),
    "ffn_up_exps.weight": (32, 24, 6),
    "ffn_up_exps.bias": (24, 6),
    "ffn_down_exps.weight": (24, 32, 6),
    "ffn_down_exps.bias": (32, 6),
}


def gpt_oss(**changes: Any) -> File:
    """4 layers, 4 heads over 2 KV heads of 16, 32 wide, a window of 24; `changes` by key (dots as __); None removes a key."""
    metadata: dict[str, Any] = {
        "block_count": 4,
        "context_length": 4096,
        "embedding_length": 32,
        "feed_forward_length": 24,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 16,
        "attention.value_length": 16,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.sliding_window": 24,
        "rope.freq_base": 150000.0,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 128,
        "expert_count": 6,
        "expert_used_count": 2,
        "expert_feed_forward_length": 24,
        "vocab_size": 10,
    }
    metadata |= {key.replace("__", "."): value for key, value in changes.items()}
    tensors = {"token_embd.weight": Tensor((32, 10)), "output.weight": Tensor((32, 10)), "output_norm.weight": Tensor((32,))}
    tensors |= {f"blk.{i}.{name}": Tensor(shape) for i in range(4) for name, shape in TENSORS.items()}
    known = {f"gpt-oss.{key}": value for key, value in metadata.items() if value is not None}
    return File({"general.architecture": "gpt-oss", **known}, tensors)


def test_a_file() -> None:
    spec = build_spec(gpt_oss())
    block = spec.blocks[2]
    mixer, ffn = block.mixer, block.ffn
    assert [one.mixer.window for one in spec.blocks] == [24, None, 24, None]
    assert (mixer.sinks, mixer.scale, mixer.q.bias) == ("blk.2.attn_sinks.weight", 0.25, "blk.2.attn_q.bias")
    assert mixer.out.bias == "blk.2.attn_output.bias"
    assert (mixer.rope.kind, mixer.rope.freq_base) == ("neox", 150000.0)
    assert mixer.rope.yarn is not None and mixer.rope.yarn.factor == 32.0
    assert block.ffn_norm.weight == "blk.2.post_attention_norm.weight"
    assert isinstance(ffn, MoeFfn)
    assert (ffn.routing.gating, ffn.routing.norm_weights) == ("softmax_chosen", False)
    assert ffn.act == ClampedSwiglu(alpha=1.702, limit=7.0)
    biases = ("ffn_gate_inp.bias", "ffn_gate_exps.bias", "ffn_up_exps.bias", "ffn_down_exps.bias")
    assert tuple(one.bias for one in (ffn.router, ffn.gate, ffn.up, ffn.down)) == tuple(f"blk.2.{name}" for name in biases)
    assert spec.head.weight == "output.weight"


def test_layers_of_one_window_are_a_cache_group() -> None:
    spec = build_spec(gpt_oss())
    assert windows(spec) == (None, 24)
    assert groups_of(spec) == {0: 1, 1: 0, 2: 1, 3: 0}


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({"attention__sliding_window_pattern": 3}, [24, 24, None, 24]),
        ({"attention__sliding_window_pattern": 1}, [None] * 4),
        ({"attention__sliding_window_pattern": [True, True, False, True, False]}, [24, 24, None, 24]),
        ({"attention__sliding_window": 0}, [None] * 4),
        ({"attention__sliding_window": None}, [None] * 4),
    ],
)
def test_where_windows_are(changes: dict[str, Any], seen: list[int | None]) -> None:
    assert [one.mixer.window for one in build_spec(gpt_oss(**changes)).blocks] == seen


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attention__sliding_window_pattern": [True, False]}, "sliding_window_pattern is not one truth value for each of 4"),
        ({"attention__sliding_window_pattern": [1, 0, 1, 0]}, "sliding_window_pattern is not one truth value"),
        ({"attention__sliding_window_pattern": 0}, "sliding_window_pattern is 0"),
        ({"attention__sliding_window": -4}, "sliding_window is -4"),
        ({"attention__head_count": 2}, "attn_q.weight has shape"),
        ({"expert_feed_forward_length": None}, "expert_feed_forward_length is missing"),
    ],
)
def test_contradictions_name_the_key(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(GgufError, match=words):
        build_spec(gpt_oss(**changes))


def test_sinks_are_needed() -> None:
    file = gpt_oss()
    del file.tensors["blk.3.attn_sinks.weight"]
    with pytest.raises(GgufError, match=r"blk\.3\.attn_sinks\.weight is missing"):
        build_spec(file)
